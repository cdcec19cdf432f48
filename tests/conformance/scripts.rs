//! RunJS on every backend: sessions of scripts, and the tools that they call.

use crate::Fixture;
use crate::fixture::{eventually, marker, processes};
use crate::tools::{call, sleep, text, tools};
use glovebox_proto::Code;
use glovebox_tools::ToolSession;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

/// A script's session, whatever is behind it.
pub(crate) fn scripts_keep_their_variables_and_call_tools(fixture: &Fixture) {
    let tools = tools(fixture);
    let run = |tools: &ToolSession, arguments: Value| call(tools, "RunJS", arguments).unwrap();
    let js = |source: &str| run(&tools, json!({ "source": source }));
    let first = js("let n = 40; function next() { n += 1; return n; } next()");
    assert!(first.text.starts_with("41\n[done, "), "{}", first.text);
    assert_eq!(first.facts["is_new_session"], true);
    // Whoever else works on the sandbox finds the session; one of another name is another one.
    let other = run(&tools.new_conversation(), json!({ "source": "next()" }));
    assert!(other.text.starts_with("42\n["), "{}", other.text);
    assert_eq!(other.facts["is_new_session"], false);
    let apart = run(
        &tools,
        json!({ "source": "typeof next", "session": "apart" }),
    );
    assert!(apart.text.starts_with("undefined\n["), "{}", apart.text);

    let wrote = js(
        "await tools.Write({ path: 'by-script', content: 'a\\nb\\n' });
         const outcomes = await Promise.all([1, 2, 3].map((i) => tools.Bash({ command: `echo ${i}` })));
         print(outcomes.map((outcome) => outcome.text[0]).join());
         (await tools.Read({ path: 'by-script' })).text",
    );
    assert!(
        wrote
            .text
            .starts_with("1,2,3\n     1\ta\n     2\tb\n[done, "),
        "{}",
        wrote.text
    );
    assert_eq!(wrote.facts["calls_made"], 5);
    assert_eq!(wrote.facts["calls"][0]["tool"], "Write");
    assert!(text(&tools, "Read", json!({ "path": "by-script" })).contains("\tb\n"));

    // What goes wrong in there says what and where, and the session goes on.
    let failed = js("var ok = 1;\nawait tools.Read({ path: 'nowhere' });");
    assert!(
        failed.is_error && failed.text.contains("ToolError: "),
        "{}",
        failed.text
    );
    assert!(
        failed.text.contains("nowhere") && failed.text.contains("(line 2)"),
        "{}",
        failed.text
    );
    let nested = js(
        "try { await tools.RunJS({ source: '1' }) } catch (e) { print(e.code) }
                     try { await callTool('spawn', { name: 'x' }) } catch (e) { print(e.code) }
                     try { await tools.Nothing() } catch (e) { print(e.code) }",
    );
    let codes = "permission-denied\npermission-denied\nnot-found\n[done";
    assert!(nested.text.starts_with(codes), "{}", nested.text);
    let late = run(
        &tools,
        json!({ "source": "for (;;) {}", "timeout_ms": 300 }),
    );
    assert!(
        late.is_error && late.facts["ending"] == "timed_out",
        "{}",
        late.text
    );
    assert_eq!(late.facts["variables_lost"], false);

    // Giving up ends the script and what it called, and not the session.
    let marker = marker();
    let cancel = AtomicBool::new(false);
    let source = format!("await tools.Bash({})", sleep(&marker));
    let given_up = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| tools.call("RunJS", json!({ "source": source }), &cancel));
        assert!(eventually(|| !processes(&marker).is_empty()));
        cancel.store(true, Ordering::SeqCst);
        waiting.join().unwrap()
    });
    assert_eq!(given_up.unwrap_err().code, Code::Cancelled);
    assert!(eventually(|| processes(&marker).is_empty()));
    let still = js("next()");
    assert!(still.text.starts_with("43\n["), "{}", still.text);

    // Its end is noticed, and the next one begins anew.
    let jobs = text(&tools, "Job", json!({ "action": "list" }));
    assert!(jobs.contains(": JavaScript session main\n"), "{jobs}");
    let id = still.facts["job"].clone();
    let _ = text(&tools, "Job", json!({ "action": "kill", "id": id }));
    let anew = js("typeof next");
    assert!(anew.text.starts_with("undefined\n["), "{}", anew.text);
    assert_eq!(anew.facts["is_new_session"], true);
    for name in ["c", "d"] {
        let _ = run(&tools, json!({ "source": "1", "session": name }));
    }
    let many = call(&tools, "RunJS", json!({ "source": "1", "session": "e" })).unwrap_err();
    assert_eq!(many.code, Code::Busy);
}
