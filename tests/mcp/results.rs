//! What a model is told of its calls: walls that a pipe hides, limits, matches in long lines, output as a terminal has it,
//! and names of tools.

use crate::pipe::Pipe;
use serde_json::json;
use testkit::Person;

fn bash(pipe: &mut Pipe, command: &str) -> String {
    pipe.call("Bash", &json!({ "command": command }))
}

#[test]
fn command_that_ends_well_behind_a_pipe_is_told_of_the_network_it_lacked() {
    let person = Person::myself();
    let mut pipe = Pipe::open(&person, "");
    let ask = "getent hosts nowhere.example";
    for command in [
        format!("{ask} 2>&1 | tail -3"),
        format!("{ask} || true"),
        format!("{ask}; echo done"),
    ] {
        let told = bash(&mut pipe, &command);
        assert!(told.contains("[exit code 0, "), "{command}: {told}");
        let wall = "looked up the name `nowhere.example`, and this sandbox has no network";
        assert!(told.contains(wall), "{command}: {told}");
    }
    let told = bash(&mut pipe, "getent hosts localhost | tail -3");
    assert!(!told.contains("no network"), "{told}");
}

#[test]
fn command_that_runs_out_of_memory_is_told_the_limit() {
    let person = Person::myself();
    let mut pipe = Pipe::open(&person, "--memory 128MiB");
    let told = bash(&mut pipe, "head -c 400M /dev/zero | tail");
    if !told.contains("out of memory") {
        testkit::skip!("needs a kernel that holds memory limits here: {told}");
    }
    let limit = "[the memory limit of 128 MiB was reached; only the user can change that:";
    assert!(told.contains(limit), "{told}");
}

#[test]
fn match_in_a_long_line_is_shown_with_what_stands_around_it() {
    let person = Person::myself();
    let (before, after) = ("var ä=1;".repeat(40_000), "var b=2;".repeat(40_000));
    person.write(
        "project/min.js",
        format!("{before}needle();{after}\nneedle\n"),
    );
    person.write("project/start.js", format!("needle();{after}\n"));
    person.write("project/short.js", format!("{}needle\n", "x".repeat(200)));
    let mut pipe = Pipe::open(&person, "");
    let mut grep = |path: &str| {
        let arguments = json!({ "pattern": "needle", "path": path });
        pipe.call("Grep", &arguments)
    };
    let told = grep("min.js");
    let column = before.len() + 1;
    assert!(
        told.contains(&format!("1: [column {column}] [...]")),
        "{told}"
    );
    assert!(told.contains("var ä=1;needle();var b=2;"), "{told}");
    assert!(told.contains("2: needle\n") && told.len() < 600, "{told}");
    let told = grep("start.js");
    assert!(told.contains("1: [column 1] needle();var b=2;"), "{told}");
    let told = grep("short.js");
    assert!(told.contains("xneedle\n") && !told.contains('['), "{told}");
}

#[test]
fn output_of_commands_reaches_the_model_as_a_terminal_has_it_in_the_end() {
    let person = Person::myself();
    person.write("project/colours", "\u{1b}[31mred\u{1b}[0m\n");
    let mut pipe = Pipe::open(&person, "");
    for (command, shown) in [
        (
            r"printf '\033[1;31mFAILED\033[0m test_x\n'",
            "FAILED test_x\n[",
        ),
        (
            r"for i in $(seq 1 100); do printf '\r%3d%% [%s]' $i ====; done; echo",
            "100% [====]\n[",
        ),
        (r"printf 'one\r\ntwo\r\n'", "one\ntwo\n["),
        (r"printf '\033]0;title\007x\n'", "\\x1b]0;title\\x07x\n["),
    ] {
        let told = bash(&mut pipe, command);
        assert!(told.starts_with(shown), "{command}: {told}");
    }
    // A file is shown as it is.
    let told = pipe.call("Read", &json!({ "path": "colours" }));
    assert!(told.contains("\\x1b[31mred\\x1b[0m"), "{told}");
}

#[test]
fn prefix_stands_before_the_names_of_tools_wherever_they_are_named() {
    let person = Person::myself();
    let mut pipe = Pipe::open(&person, "--prefix gb_ --max-wait 1s");
    let listed = pipe.ask("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert!(tools.len() > 8, "{listed}");
    for tool in tools {
        let (name, description) = (&tool["name"], tool["description"].as_str().unwrap());
        assert!(name.as_str().unwrap().starts_with("gb_"), "{name}");
        for named in ["Job reads", "use Edit", " Bash "] {
            assert!(!description.contains(&format!(" {named}")), "{description}");
        }
    }
    assert!(
        pipe.instructions.contains("gb_Job waits for it"),
        "{}",
        pipe.instructions
    );
    assert!(
        pipe.instructions
            .starts_with("Use these tools for files and commands instead of your own.")
    );
    let told = pipe.call("gb_Bash", &json!({ "command": "sleep 30" }));
    assert!(told.contains("; gb_Job {\"action\":\"wait\""), "{told}");
    let answer = pipe.ask(
        "tools/call",
        &json!({ "name": "Bash", "arguments": { "command": "true" } }),
    );
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let told = pipe.call("gb_Nothing", &json!({}));
    assert!(told.contains("gb_Bash, gb_Job"), "{told}");
    // The twin: without a prefix names are as they were.
    let mut plain = Pipe::open(&person, "");
    assert!(bash(&mut plain, "echo plain").starts_with("plain\n"));
    let refused = person.line("mcp --prefix a.b").run().expect_code(2);
    assert!(refused.err().contains("up to 16 letters"), "{refused}");
}
