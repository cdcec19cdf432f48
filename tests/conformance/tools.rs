//! The agent's tools on every backend: the same definitions, the same answers.

use crate::Fixture;
use crate::endings::process;
use crate::fixture::{eventually, marker, processes};
use glovebox_proto::{Class, Code, Fault, Request};
use glovebox_tools::{OutcomeView, ToolOutcome, ToolSession};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

static NEVER: AtomicBool = AtomicBool::new(false);

/// Steps of the long session.
const STEPS: u64 = 200;

pub(crate) fn tools(fixture: &Fixture) -> ToolSession {
    ToolSession::new(Arc::new(fixture.sandbox()))
}

pub(crate) fn call(
    tools: &ToolSession,
    tool: &str,
    arguments: Value,
) -> Result<ToolOutcome, Fault> {
    tools.call(tool, arguments, &NEVER)
}

pub(crate) fn text(tools: &ToolSession, tool: &str, arguments: Value) -> String {
    let told = arguments.to_string();
    call(tools, tool, arguments)
        .unwrap_or_else(|fault| panic!("{tool} {told}: {fault}"))
        .text
}

fn diff(outcome: &ToolOutcome) -> String {
    match &outcome.view {
        OutcomeView::Change(change) => change.diff(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn sleep(marker: &str) -> Value {
    json!({ "command": format!("sleep {marker}") })
}

pub(crate) fn a_file_is_moved_and_nothing_is_lost(fixture: &Fixture) {
    let tools = tools(fixture);
    let prepare =
        "mkdir -p from/dir; echo one >from/file; echo two >from/other; ln -s other from/link";
    let _ = text(&tools, "Bash", json!({ "command": prepare }));
    let _ = text(&tools, "Read", json!({ "path": "from/file" }));
    for (from, to, told) in [
        (
            "from/file",
            "to/new/file",
            "[file from/file moved to to/new/file]",
        ),
        ("from/link", "to/link", "[link from/link moved to to/link]"),
    ] {
        let arguments = json!({ "from": from, "to": to });
        assert_eq!(text(&tools, "Move", arguments), told);
    }
    for (from, to, code) in [
        ("from/other", "to/new/file", Code::AlreadyExists),
        ("from/dir", "to/dir", Code::IsDirectory),
        ("from/file", "to/file", Code::NotFound),
        ("from/other", "from/other/below", Code::AlreadyExists),
    ] {
        let fault = call(&tools, "mv", json!({ "from": from, "to": to })).unwrap_err();
        assert_eq!(fault.code, code, "{from} {to}: {fault}");
    }
    // It is the file that was read, under another name.
    let written = json!({ "path": "to/new/file", "content": "three\n" });
    assert_eq!(
        text(&tools, "Write", written),
        "[to/new/file replaced: 1 lines, 6 bytes]"
    );
    let over = json!({ "from": "from/other", "to": "to/new/file", "overwrite": true });
    let _ = text(&tools, "Move", over);
    let left = json!({ "command": "find from to | sort; readlink to/link; cat to/new/file" });
    assert!(
        text(&tools, "Bash", left)
            .starts_with("from\nfrom/dir\nto\nto/link\nto/new\nto/new/file\nother\ntwo\n"),
        "what was not to be moved is there"
    );
}

pub(crate) fn what_is_named_is_deleted_and_no_more(fixture: &Fixture) {
    let tools = tools(fixture);
    let prepare = "mkdir -p gone/full gone/empty; echo 1234567 >gone/file; echo kept >gone/full/kept; \
        ln -s full/kept gone/link; ln -s full gone/dir-link";
    let _ = text(&tools, "Bash", json!({ "command": prepare }));
    for (path, told) in [
        ("gone/file", "[gone/file deleted: file of 8 bytes]"),
        ("gone/link", "[gone/link deleted: link]"),
        ("gone/dir-link", "[gone/dir-link deleted: link]"),
        ("gone/empty", "[gone/empty deleted: empty directory]"),
    ] {
        assert_eq!(text(&tools, "Delete", json!({ "path": path })), told);
    }
    let fault = call(&tools, "rm", json!({ "path": "gone/full" })).unwrap_err();
    assert_eq!(fault.code, Code::NotEmpty);
    assert!(fault.remedy.is_some(), "{fault}");
    let fault = call(&tools, "Delete", json!({ "path": "gone/file" })).unwrap_err();
    assert_eq!(fault.code, Code::NotFound);
    let left = json!({ "command": "find gone | sort; cat gone/full/kept" });
    assert!(
        text(&tools, "Bash", left).starts_with("gone\ngone/full\ngone/full/kept\nkept\n"),
        "what it must not touch is there"
    );
    // What was deleted can be written anew without having been read.
    let anew = json!({ "path": "gone/file", "content": "x\n" });
    assert_eq!(
        text(&tools, "Write", anew),
        "[gone/file written anew: 1 lines, 2 bytes]"
    );
}

pub(crate) fn files_are_written_read_edited_and_found(fixture: &Fixture) {
    let tools = tools(fixture);
    let wrote = call(
        &tools,
        "Write",
        json!({ "path": "src/a.rs", "content": "one\ntwo\n" }),
    )
    .unwrap();
    assert_eq!(wrote.text, "[src/a.rs written anew: 2 lines, 8 bytes]");
    assert_eq!(diff(&wrote), "@@ -0,0 +1,2 @@\n+one\n+two\n");
    assert_eq!(
        text(&tools, "Read", json!({ "path": "src/a.rs" })),
        "     1\tone\n     2\ttwo\n"
    );
    let edited = call(
        &tools,
        "Edit",
        json!({ "path": "src/a.rs", "old": "two", "new": "2" }),
    )
    .unwrap();
    assert_eq!(diff(&edited), "@@ -1,2 +1,2 @@\n one\n-two\n+2\n");
    // Who wrote it and edited it knows it; another conversation does not, nor anybody after a change by a
    // command. An edit only needs its own place to be as it was.
    let other = tools.new_conversation();
    let again = json!({ "path": "src/a.rs", "content": "new\n" });
    assert_eq!(
        call(&other, "Write", again.clone()).unwrap_err().code,
        Code::UnseenContent
    );
    let fault = call(&other, "Write", again.clone()).unwrap_err();
    assert_eq!(fault.class, Class::Refused);
    let _ = text(&tools, "Write", again.clone());
    let _ = text(
        &tools,
        "Bash",
        json!({ "command": "echo more >> src/a.rs" }),
    );
    assert_eq!(
        call(&tools, "Write", again.clone()).unwrap_err().code,
        Code::UnseenContent
    );
    let _ = text(
        &tools,
        "Edit",
        json!({ "path": "src/a.rs", "old": "new", "new": "newer" }),
    );
    let _ = text(&tools, "Read", json!({ "path": "src/a.rs" }));
    let _ = text(&tools, "Write", again);

    let _ = text(
        &tools,
        "Write",
        json!({ "path": "b.txt", "content": "new\n" }),
    );
    assert_eq!(text(&tools, "List", json!({})), "b.txt  4 bytes\nsrc/\n");
    assert_eq!(
        text(&tools, "Glob", json!({ "pattern": "*.rs" })),
        "src/a.rs\n"
    );
    // A pattern may say itself where to begin; what it finds can be read by that name.
    assert_eq!(
        text(&tools, "Glob", json!({ "pattern": "./*.txt" })),
        "b.txt\n"
    );
    let cwd = String::from_utf8(fixture.sandbox().facts().unwrap().cwd.into_vec()).unwrap();
    let absolute = format!("{cwd}/src/*.rs");
    let hit = text(&tools, "Glob", json!({ "pattern": absolute }));
    assert_eq!(hit, format!("{cwd}/src/a.rs\n"));
    assert!(text(&tools, "Read", json!({ "path": hit.trim_end() })).contains("new"));
    let found = text(
        &tools,
        "Grep",
        json!({ "pattern": "n.w", "glob": absolute }),
    );
    assert_eq!(found, format!("{cwd}/src/a.rs\n     1: new\n"));
    for pattern in ["src/", ""] {
        let fault = call(&tools, "Glob", json!({ "pattern": pattern })).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument, "{pattern}");
    }
    let first = text(&tools, "Glob", json!({ "pattern": "*", "limit": 1 }));
    assert_eq!(
        first,
        "b.txt\n[1 of 2 files, newest first; the next ones with offset 1]\n"
    );
    assert_eq!(
        text(&tools, "Glob", json!({ "pattern": "*", "offset": 1 })),
        "src/a.rs\n"
    );
    let found = text(&tools, "Grep", json!({ "pattern": "n.w", "limit": 1 }));
    assert_eq!(
        found,
        "b.txt\n     1: new\n[1 of 2 hits; the next ones with offset 1]\n"
    );
    let found = text(&tools, "Grep", json!({ "pattern": "n.w", "offset": 1 }));
    assert_eq!(found, "src/a.rs\n     1: new\n");
}

pub(crate) fn commands_are_jobs_with_sessions(fixture: &Fixture) {
    let tools = tools(fixture);
    let ran = call(
        &tools,
        "Bash",
        json!({ "command": "echo a; echo b >&2; exit 3" }),
    )
    .unwrap();
    assert!(ran.is_error && ran.facts["exit_code"] == 3 && ran.facts["stderr_bytes"] == 0);
    let id = ran.facts["job"].clone();
    let log = text(&tools, "Read", json!({ "path": format!("job:{id}") }));
    assert!(log.contains("\ta\n") && log.contains("\tb\n"), "{log}");
    // The command is one word, whatever is in it.
    let odd = text(
        &tools,
        "Bash",
        json!({ "command": "printf '%s\\n' \"$0\" '; $(x) \"'" }),
    );
    assert!(odd.starts_with("bash\n; $(x) \"\n["), "{odd}");

    let _ = text(
        &tools,
        "Bash",
        json!({ "command": "mkdir -p d; cd d; export K=v", "session": "s" }),
    );
    let kept = text(
        &tools,
        "Bash",
        json!({ "command": "echo ${PWD##*/} $K", "session": "s" }),
    );
    assert!(kept.starts_with("d v\n["), "{kept}");
    let fresh = text(&tools, "Bash", json!({ "command": "echo ${K-none}" }));
    assert!(fresh.starts_with("none\n["), "{fresh}");

    // Input of any size, for commands that read it and for those that do not.
    let large = "x".repeat(3 << 20);
    let counted = text(
        &tools,
        "Bash",
        json!({ "command": "wc -c", "stdin": large }),
    );
    assert!(counted.starts_with("3145728\n["), "{counted}");
    let ignored = text(
        &tools,
        "Bash",
        json!({ "command": "echo ok", "stdin": large }),
    );
    assert!(ignored.starts_with("ok\n["), "{ignored}");

    let marker = marker();
    let line = format!("echo begun; sleep {marker}");
    let started = call(
        &tools,
        "Bash",
        json!({ "command": line, "background": true }),
    )
    .unwrap();
    let id = started.facts["job"].clone();
    let read = text(
        &tools,
        "Job",
        json!({ "action": "read", "id": id, "wait_ms": 5000 }),
    );
    assert!(read.starts_with("begun\n"), "{read}");
    assert!(text(&tools, "Job", json!({ "action": "list" })).contains("running"));
    let _ = text(&tools, "Job", json!({ "action": "kill", "id": id }));
    assert!(eventually(|| processes(&marker).is_empty()));
}

/// Every byte of a long output is there, in whatever pieces it is read.
pub(crate) fn what_is_left_out_can_be_read(fixture: &Fixture) {
    let tools = tools(fixture);
    let line =
        "for n in $(seq 1 20000); do echo \"line $n\"; done; printf '\\033[31mred\\n'; false";
    let ran = call(&tools, "Bash", json!({ "command": line })).unwrap();
    let (total, id) = (
        ran.facts["output_bytes"].as_u64().unwrap(),
        &ran.facts["job"],
    );
    assert!(ran.text.starts_with("line 1\n") && ran.text.contains("line 20000\nred\n["));
    let mut all = String::new();
    let mut offset = 0;
    while offset < total {
        let part = call(
            &tools,
            "Job",
            json!({ "action": "read", "id": id, "offset": offset }),
        )
        .unwrap();
        offset = part.facts["next"].as_u64().unwrap();
        let (lines, _) = part.text.rsplit_once('[').unwrap();
        all.push_str(lines);
    }
    let wanted: Vec<_> = (1..=20_000).map(|n| format!("line {n}\n")).collect();
    assert!(
        all == wanted.concat() + "\\x1b[31mred\n",
        "{} bytes",
        all.len()
    );
}

pub(crate) fn whatever_comes_has_a_bounded_clear_outcome(fixture: &Fixture) {
    let tools = tools(fixture);
    let make = "mkfifo fifo; ln -s loop loop; head -c 300000 /dev/urandom > random; printf '\\377\\376ab\\033]0;x\\007' > bad; \
                mkdir dir; truncate -s 20G sparse; ln -s /dev/zero zero";
    let _ = text(&tools, "Bash", json!({ "command": make }));
    for (path, codes) in [
        ("fifo", &[Code::SpecialFile][..]),
        ("/dev/zero", &[Code::SpecialFile]),
        ("zero", &[Code::SpecialFile]),
        ("loop", &[Code::Io, Code::NotFound, Code::InvalidArgument]),
        ("a\0b", &[Code::InvalidArgument]),
    ] {
        for (tool, arguments) in [
            ("Read", json!({ "path": path })),
            ("Edit", json!({ "path": path, "old": "a", "new": "b" })),
            ("Write", json!({ "path": path, "content": "x" })),
        ] {
            let fault = call(&tools, tool, arguments).unwrap_err();
            assert!(codes.contains(&fault.code), "{tool} {path}: {fault:?}");
        }
    }
    assert!(text(&tools, "Read", json!({ "path": "bad" })).contains("\\xff\\xfeab\\x1b]0;x\\x07"));
    assert!(text(&tools, "Read", json!({ "path": "random" })).contains("is not text"));
    assert!(text(&tools, "Read", json!({ "path": "sparse" })).contains("21474836480 bytes"));
    let shown = text(
        &tools,
        "Bash",
        json!({ "command": "head -c 200000 /dev/urandom" }),
    );
    assert!(
        shown.len() < 40_000
            && !shown
                .chars()
                .any(|c| c.is_control() && c != '\n' && c != '\t')
    );
    let flood = call(
        &tools,
        "Bash",
        json!({ "command": "head -c 200000000 /dev/zero | tr '\\0' x" }),
    )
    .unwrap();
    assert_eq!(flood.facts["left_out_bytes"], 200_000_000 - 2000);
    assert!(flood.text.len() < 3000, "{}", flood.text.len());

    let large = "y".repeat(5 << 20);
    for (tool, arguments, code) in [
        ("Bash", json!({ "command": &large }), Code::TooLarge),
        (
            "Code",
            json!({ "language": "bash", "source": &large }),
            Code::TooLarge,
        ),
        ("Grep", json!({ "pattern": &large }), Code::TooLarge),
        ("Glob", json!({ "pattern": &large }), Code::TooLarge),
        ("Read", json!({ "path": &large }), Code::TooLarge),
        (
            "Edit",
            json!({ "path": "bad", "old": &large, "new": "" }),
            Code::TooLarge,
        ),
        ("Grep", json!({ "pattern": "(" }), Code::InvalidArgument),
        ("Bash", json!({}), Code::InvalidArgument),
        ("Bash", json!({ "command": 7 }), Code::InvalidArgument),
        ("Bash", json!([1]), Code::InvalidArgument),
        ("Job", json!({ "action": "dance" }), Code::InvalidArgument),
        ("Job", json!({ "action": "read" }), Code::InvalidArgument),
        (
            "Job",
            json!({ "action": "read", "id": 9999 }),
            Code::JobNotFound,
        ),
        (
            "Read",
            json!({ "path": "bad", "offset": -1 }),
            Code::InvalidArgument,
        ),
        ("Read", json!({ "path": "job:x" }), Code::InvalidArgument),
        (
            "Edit",
            json!({ "path": "bad", "edits": [] }),
            Code::InvalidArgument,
        ),
        (
            "Write",
            json!({ "path": "dir", "content": "" }),
            Code::IsDirectory,
        ),
        ("Nothing", json!({}), Code::NotFound),
    ] {
        let fault = call(&tools, tool, arguments).unwrap_err();
        assert_eq!(fault.code, code, "{tool}: {fault}");
        assert!(
            fault.message.len() < 1000,
            "{tool}: {} bytes",
            fault.message.len()
        );
    }
    assert!(
        text(
            &tools,
            "Write",
            json!({ "path": "large", "content": large })
        )
        .contains("5242880 bytes")
    );
    assert!(tools.sandbox().ping().is_ok());
}

pub(crate) fn calls_wait_for_each_other_only_where_they_must(fixture: &Fixture) {
    let tools = tools(fixture);
    let _ = text(&tools, "Write", json!({ "path": "f", "content": "x\n" }));
    let (slow, next) = (marker(), marker());
    let (gone, give_up) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| tools.call("Bash", sleep(&slow), &gone));
        assert!(eventually(|| !processes(&slow).is_empty()));
        // Reading and looking after jobs go on; another command waits, and can give up.
        let begin = Instant::now();
        let readers: Vec<_> = (0..20)
            .map(|_| scope.spawn(|| text(&tools, "Read", json!({ "path": "f" }))))
            .collect();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), "     1\tx\n");
        }
        assert!(text(&tools, "Job", json!({ "action": "list" })).contains("running"));
        assert!(begin.elapsed() < Duration::from_secs(5));
        // So do other commands; what changes files waits, and can give up.
        let beside = scope.spawn(|| tools.call("Bash", sleep(&next), &gone));
        assert!(eventually(|| !processes(&next).is_empty()));
        let write = json!({ "path": "g", "content": "x" });
        let waiting = scope.spawn(|| tools.call("Write", write, &give_up));
        std::thread::sleep(Duration::from_millis(100));
        assert!(tools.sandbox().read_file(b"g", 1).is_err());
        give_up.store(true, Ordering::Relaxed);
        assert_eq!(waiting.join().unwrap().unwrap_err().code, Code::Cancelled);
        // Giving up the calls that run ends what they started, and tells what that has written.
        gone.store(true, Ordering::Relaxed);
        for call in [running, beside] {
            let outcome = call.join().unwrap().unwrap();
            assert_eq!(outcome.facts["cancelled"], true, "{outcome:?}");
            assert!(outcome.is_error, "{outcome:?}");
        }
    });
    assert!(eventually(
        || processes(&slow).is_empty() && processes(&next).is_empty()
    ));
    assert!(tools.sandbox().read_file(b"g", 1).is_err());
    assert!(text(&tools, "Bash", json!({ "command": "echo free" })).starts_with("free\n"));
}

pub(crate) fn a_lost_call_is_never_made_twice(fixture: &Fixture) {
    let tools = Arc::new(tools(fixture));
    let marker = marker();
    let line = format!("echo once >> count; cat count; sleep {marker}");
    let running = std::thread::spawn({
        let tools = Arc::clone(&tools);
        move || call(&tools, "Bash", json!({ "command": line }))
    });
    assert!(eventually(|| !processes(&marker).is_empty()));
    let log = text(&tools, "Read", json!({ "path": "job:1" }));
    assert_eq!(log, "     1\tonce\n");
    let status = Command::new("kill")
        .args(["-9", &process(tools.sandbox()).to_string()])
        .status()
        .unwrap();
    assert!(status.success());
    let fault = running.join().unwrap().unwrap_err();
    assert_eq!(fault.class, Class::Lost, "{fault}");
    let fault = call(&tools, "Read", json!({ "path": "count" })).unwrap_err();
    assert_eq!(fault.class, Class::Lost, "{fault}");
    // Where the sandbox works on a directory of this machine, it can be seen that it ran once.
    if let Ok(count) = std::fs::read_to_string(fixture.path("project/count")) {
        assert_eq!(count, "once\n");
    }
}

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

pub(crate) fn a_long_session_loses_nothing_and_leaves_nothing(fixture: &Fixture) {
    let tools = tools(fixture);
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let marker = marker();
    let mut jobs: Vec<u64> = Vec::new();
    for step in 0..STEPS {
        let name = format!("d{}/f{}", dice.below(3), dice.below(5));
        match dice.below(9) {
            0 | 1 => {
                let content = format!(
                    "step {step}\nold line\n{}\n",
                    "z".repeat(dice.below(9000) as usize)
                );
                let _ = text(
                    &tools,
                    "Write",
                    json!({ "path": name, "content": content, "overwrite": true }),
                );
                let _ = files.insert(name, content);
            }
            2 => {
                let new = format!("line of {step}");
                let edit = call(
                    &tools,
                    "Edit",
                    json!({ "path": name, "old": "old line", "new": new }),
                );
                match files.get_mut(&name) {
                    Some(content) if content.contains("old line") => {
                        assert!(edit.is_ok(), "{edit:?}");
                        *content = content.replace("old line", &new);
                    }
                    Some(_) => assert_eq!(edit.unwrap_err().code, Code::NoMatch),
                    None => assert_eq!(edit.unwrap_err().code, Code::NotFound),
                }
            }
            3 => {
                let shown =
                    call(&tools, "Bash", json!({ "command": format!("cat {name}") })).unwrap();
                // Without the file there is the complaint of `cat`.
                match files.get(&name) {
                    Some(content) => assert_eq!(shown.facts["stdout_bytes"], content.len()),
                    None => assert_eq!(shown.facts["exit_code"], 1),
                }
            }
            4 => {
                let line = format!("sleep {marker} & sleep {marker} & wait");
                let job = call(
                    &tools,
                    "Bash",
                    json!({ "command": line, "background": true }),
                )
                .unwrap();
                jobs.push(job.facts["job"].as_u64().unwrap());
            }
            5 if !jobs.is_empty() => {
                // A signal reaches what runs at that moment; only the end of a job is the end of all.
                let id = jobs[dice.below(jobs.len() as u64) as usize];
                let action = if dice.below(2) == 0 { "kill" } else { "signal" };
                let done = call(
                    &tools,
                    "Job",
                    json!({ "action": action, "id": id, "signal": 9 }),
                );
                let is_over = matches!(&done, Err(fault) if fault.code == Code::JobEnded);
                assert!(done.is_ok() || is_over, "{done:?}");
            }
            6 => {
                // A call that is given up before it has begun, or in the middle.
                let cancel = AtomicBool::new(dice.below(2) == 0);
                std::thread::scope(|scope| {
                    let given = scope.spawn(|| tools.call("Bash", sleep(&marker), &cancel));
                    std::thread::sleep(Duration::from_millis(dice.below(20)));
                    cancel.store(true, Ordering::Relaxed);
                    // One that had begun has an outcome.
                    match given.join().unwrap() {
                        Ok(outcome) => assert_eq!(outcome.facts["cancelled"], true, "{outcome:?}"),
                        Err(fault) => assert_eq!(fault.code, Code::Cancelled),
                    }
                });
            }
            7 => {
                let found = call(
                    &tools,
                    "Grep",
                    json!({ "pattern": "^step", "mode": "files" }),
                )
                .unwrap();
                assert_eq!(found.facts["files"], files.len());
            }
            _ => match (
                call(&tools, "Read", json!({ "path": name })),
                files.get(&name),
            ) {
                (Ok(read), Some(content)) => assert_eq!(read.facts["bytes"], content.len()),
                (Err(fault), None) => assert_eq!(fault.code, Code::NotFound),
                other => panic!("{other:?}"),
            },
        }
    }
    for (name, content) in &files {
        let there = tools.sandbox().read_file(name.as_bytes(), 1 << 20).unwrap();
        assert!(there == content.as_bytes(), "{name}");
    }
    for id in jobs {
        let _ = text(&tools, "Job", json!({ "action": "kill", "id": id }));
    }
    assert!(eventually(|| processes(&marker).is_empty()));
    let listed = tools.sandbox().call(Request::JobList);
    assert!(listed.is_ok(), "{listed:?}");
}
