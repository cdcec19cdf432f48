//! Scripts of the model's: what they see, what they may do, and what they cannot get away with.

use super::{agent, at_terminal, last_results, lines_of, with};
use serde_json::json;
use testkit::{ModelServer, Person, Step, filters};

fn script(source: &str) -> Step {
    Step::call("RunJS", &json!({ "source": source }).to_string())
}

#[test]
fn a_large_file_is_looked_through_and_never_told() {
    Person::each(|person| {
        let mut content = String::new();
        while content.len() < 20 << 20 {
            content.push_str("an uninteresting line of filling, to be found nowhere else\n");
        }
        let lines = content.lines().count();
        content.push_str("the needle: 4711\n");
        content.push_str(&"and so on\n".repeat(1000));
        let file = person.write("home/big.txt", &content);
        let server = ModelServer::start([
            script("CONTEXT_DATA.length"),
            script(
                "var hits = search(/needle: (\\d+)/); hits.length + ' ' + hits[0].line + ' ' + hits[0].text",
            ),
            script("lines(hits[0].line, 2)"),
            // The programs of the sandbox have it as well, and nothing of what runs scripts has stayed.
            Step::call(
                "Bash",
                r#"{"command":"wc -c < /tmp/context; ls -A /tmp | grep -c glovebox-js; true"}"#,
            ),
            Step::text("4711."),
        ]);
        let file = file.display().to_string();
        let args = ["--sandbox", "--context", &file];
        let _ = agent(person, &server, args, "find the number")
            .run()
            .expect_code(0);
        let results = last_results(&server);
        let bytes = content.len();
        assert!(
            results[0].starts_with(&format!("{bytes}\n[done")),
            "{results:?}"
        );
        let hit = format!("1 {} the needle: 4711\n", lines + 1);
        assert!(results[1].starts_with(&hit), "{results:?}");
        assert!(
            results[2].starts_with("the needle: 4711\nand so on\n["),
            "{results:?}"
        );
        assert!(
            results[3].starts_with(&format!("{bytes}\n0\n")),
            "{results:?}"
        );
        let asked = server.asked();
        assert!(
            asked[0].body.contains(&format!("({bytes} bytes)"))
                && asked[0].body.contains("CONTEXT_DATA")
        );
        assert!(
            asked
                .iter()
                .all(|asked| !asked.body.contains("uninteresting"))
        );
        person.assert_nothing_lives();
    });
}

#[test]
fn a_session_that_goes_on_finds_its_context_again() {
    let person = Person::myself();
    let file = person.write("home/data", "12345").display().to_string();
    let server = ModelServer::start([
        script("var kept = CONTEXT_DATA.length"),
        Step::text("Kept."),
        script("kept + CONTEXT_DATA"),
        Step::text("Done."),
    ]);
    let args = ["--sandbox", "--keep", "desk", "--context", &file];
    let _ = agent(&person, &server, args, "begin").run().expect_code(0);
    let words = ["sessions", "resume", "last", "go on"];
    let _ = with(&person, &server, words).run().expect_code(0);
    let results = last_results(&server);
    assert!(results[1].starts_with("512345\n[done"), "{results:?}");
    let last = server.asked().pop().unwrap().body;
    assert!(
        last.contains("(5 bytes)") && !last.contains("surroundings changed"),
        "{last}"
    );
    let _ = person.line("kill desk").run().expect_code(0);
    person.assert_nothing_lives();
}

#[test]
fn a_script_by_hand_leaves_a_sandbox_only_for_its_changes() {
    Person::each(|person| {
        let source = |source: &str| json!({ "source": source }).to_string();
        let reads = source("(await tools.List({})).text + 1");
        let _ = person
            .glovebox(["call", "RunJS", &reads])
            .run()
            .expect_code(0);
        person.assert_nothing_left();
        let writes = source("await tools.Write({ path: 'x', content: 'y' }); 1");
        let _ = person
            .glovebox(["call", "RunJS", &writes])
            .run()
            .expect_code(0);
        let list = person.line("list").run().expect_code(0).out();
        assert!(list.contains("stopped"), "{list}");
        let _ = person.line("kill --all").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn what_cannot_be_a_context_is_said_before_anything_begins() {
    let person = Person::myself();
    let server = ModelServer::start([]);
    let large = person.write("home/large", "");
    std::fs::File::options()
        .write(true)
        .open(&large)
        .unwrap()
        .set_len((64 << 20) + 1)
        .unwrap();
    let root = person.place().root();
    let said = [
        large.display().to_string(),
        "/dev/zero".to_owned(),
        "/nowhere/at/all".to_owned(),
    ]
    .map(|file| {
        let [real, dry] = ["--yes", "--dry-run"].map(|more| {
            let ran = agent(
                &person,
                &server,
                ["--sandbox", "--context", &file, more],
                "x",
            )
            .run();
            assert_ne!(ran.code, 0, "{file}: {ran}");
            ran.failure(root)
        });
        assert_eq!(real, dry, "{file}");
        real
    });
    insta::assert_snapshot!(said.join("\n"), @"
    error: the context [ROOT]/home/large has more than 64 MiB
    hint: give a smaller file, or put it into the project
    error: the context /dev/zero is not a regular file
    hint: give a file of text with `--context`
    error: cannot read /nowhere/at/all: No such file or directory
    ");
    assert!(server.asked().is_empty() && person.sandboxes().is_empty());
    let file = person.write("home/small", "12345").display().to_string();
    let ran = agent(
        &person,
        &server,
        ["--sandbox", "--context", &file, "--dry-run"],
        "x",
    )
    .run()
    .expect_code(0);
    let context = lines_of(&ran.out(), |line| line.contains("small"));
    insta::assert_snapshot!(filters(&context, root), @"  context              [ROOT]/home/small (5 bytes)");
}

#[test]
fn a_script_may_do_what_its_caller_may() {
    Person::each(|person| {
        person.write(
            "project/glovebox.toml",
            "[policy]\ndeny = [\"Bash(rm *)\"]\nask = [\"Write\"]\n",
        );
        let server = ModelServer::start([
            script(
                "for (const [tool, args] of [['Bash', { command: 'rm -rf x' }],
                                             ['Write', { path: 'x', content: '' }],
                                             ['Bash', { command: 'echo fine' }]]) {
                   try { print((await callTool(tool, args)).text) } catch (e) { print(e.class, e.code) }
                 }",
            ),
            Step::text("Done."),
        ]);
        let args = ["--sandbox", "--apply", "never"];
        let _ = agent(person, &server, args, "try").run().expect_code(0);
        let results = last_results(&server);
        assert!(
            results[0].starts_with("refused policy-refused\nrefused policy-refused\nfine\n"),
            "{results:?}"
        );

        // In a phase without commands there are no scripts, and where there is no wall none that change
        // nothing.
        let told = [
            ["--sandbox", "--phase", "research", "--yes"],
            ["--local", "--phase", "review", "--yes"],
        ]
        .map(|args| {
            let server = ModelServer::start([script("1"), Step::text("Done.")]);
            let _ = agent(person, &server, args, "try").run().expect_code(0);
            assert!(!server.asked()[0].body.contains("RunJS"), "{args:?}");
            filters(&last_results(&server)[0], person.place().root())
        });
        insta::assert_snapshot!(told.join("\n"), @"
        [refused: policy-refused] the toolset `research` does not have the tool RunJS
        [hint] use another tool; the user can choose another toolset (`glovebox tools` shows them, `glovebox why call-[RANDOM]` explains)
        [refused: permission-denied] RunJS may change things, which the phase `review` does not
        [hint] say what would have to be done; commands can run in this phase with `sandbox`
        ");
        person.assert_nothing_lives();
    });
}

#[test]
fn a_script_that_wants_too_much_ends_and_the_run_goes_on() {
    let person = Person::myself();
    let server = ModelServer::start([
        script("var kept = 1; for (let i = 0; i < 1000000; i++) console.log('line', i)"),
        script("var all = []; for (;;) all.push(new Array(100000).fill(7))"),
        script("typeof kept"),
        Step::call(
            "RunJS",
            r#"{"source":"/(a+)+$/.test('a'.repeat(40) + 'b')","timeout_ms":500}"#,
        ),
        script("await new Promise(() => {})"),
        script("(() => { function deep() { return deep() + 1 } return deep() })()"),
        script("var held = 7; throw new Error('cc1: out of memory')"),
        script("held"),
        script("1 + 1"),
        Step::text("Done."),
    ]);
    let _ = agent(&person, &server, ["--sandbox"], "try")
        .run()
        .expect_code(0);
    let results = last_results(&server);
    assert!(results[0].starts_with("line 0\nline 1\n") && results[0].contains("line 999999\n["));
    assert!(results[0].len() < 40_000 && results[0].contains(" bytes left out; print less"));
    assert!(
        results[1].contains("out of memory") && results[1].contains("whose variables are gone")
    );
    assert!(results[2].starts_with("undefined\n[done"), "{}", results[2]);
    let root = person.place().root();
    let ended = [&results[3], &results[4], &results[6]].map(|text| filters(text, root));
    insta::assert_snapshot!(ended.join("\n"), @"
    the script took longer than it may
    [ended: its time was up, [TIME], 0 calls, session main]
    the script waits for a promise that nothing will settle
    [ended: it waits for nothing that can come, [TIME], 0 calls, session main]
    Error: cc1: out of memory (line 1)
        at <eval> (script7:1:25)
    [failed, [TIME], 0 calls, session main]
    ");
    assert!(results[5].contains("[failed"), "{}", results[5]);
    // Words about memory that are not the engine's own end no session.
    assert!(results[7].starts_with("7\n[done"), "{}", results[7]);
    assert!(results[8].starts_with("2\n[done"), "{}", results[8]);
    person.assert_nothing_lives();
}

#[test]
fn what_a_script_changes_on_the_users_files_is_asked_about_too() {
    let person = Person::myself();
    let server = ModelServer::start([
        script(
            "for (const path of ['no.txt', 'yes.txt']) {
               try { print((await tools.Write({ path, content: 'x' })).text) } catch (e) { print(e.message) }
             }
             (await tools.Read({ path: 'yes.txt' })).text",
        ),
        Step::text("Done."),
    ]);
    // The script itself, and each of its changes; what it reads is not asked about.
    let answers = [
        ("RunJS wants to:", "y\n"),
        (
            "Write, called by the script, wants to:",
            "n\nnot this one\n",
        ),
        ("path: yes.txt", "y\n"),
    ];
    let Some(shown) = at_terminal(&person, &server, "write two files", &answers) else {
        return;
    };
    assert!(!person.project().join("no.txt").exists(), "{shown}");
    assert!(person.project().join("yes.txt").exists(), "{shown}");
    assert!(!shown.contains("Read, called"), "{shown}");
    let told = filters(&last_results(&server)[0], person.place().root());
    insta::assert_snapshot!(told, @"
    the user refused this call: not this one
    [yes.txt written anew: 1 lines, 1 bytes]
         1	x
    [done, [TIME], 3 calls, new session main]
    ");
}
