//! Agents as their makers ship them, inside a sandbox: they reach a model, run commands with tools of their own, and what
//! they did comes back as a change.

use serde_json::Value;
use std::fs;
use std::path::Path;
use testkit::{Asked, ModelServer, Person, Step, installed};

/// What the model has the agent run.
const COMMAND: &str = "echo made-inside > made.txt && id -un";

/// A call of the agent's own tool for commands, if the request offers one: its name and its arguments.
fn call_of(asked: &Asked) -> Option<Step> {
    let body: Value = serde_json::from_str(&asked.body).ok()?;
    let tools = body["tools"].as_array()?;
    let names: Vec<&str> = tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    let arguments = match names
        .iter()
        .find(|name| ["Bash", "exec_command"].contains(*name))?
    {
        &"Bash" => serde_json::json!({ "command": COMMAND, "description": "make a file" }),
        _ => serde_json::json!({ "cmd": COMMAND }),
    };
    let name = names
        .iter()
        .find(|name| ["Bash", "exec_command"].contains(*name))?;
    Some(Step::call(name, &arguments.to_string()))
}

/// The call first, and when its result is there the end.
fn reply(asked: &Asked) -> Step {
    let has_result = [
        "\"type\":\"tool_result\"",
        "\"type\":\"function_call_output\"",
    ]
    .iter()
    .any(|mark| asked.body.contains(mark));
    match call_of(asked) {
        Some(call) if !has_result => call,
        Some(_) => Step::text("all is done"),
        None => Step::text("a title"),
    }
}

/// An ordinary user may have no way to the directory that cargo builds in.
#[expect(
    clippy::print_stdout,
    reason = "test output, shown when the test fails"
)]
pub(crate) fn can_reach(person: &Person, path: &Path) -> bool {
    let status = person.program("test").arg("-r").arg(path).status();
    let can_reach = status.is_ok_and(|status| status.success());
    if !can_reach {
        println!(
            "left out: {} cannot reach {}",
            person.name(),
            path.display()
        );
    }
    can_reach
}

/// Runs an agent inside, and checks that its work is in the project and its result reached the model.
fn does_its_work(program: &str, flags: &[&str], words: impl Fn(&str) -> Vec<String>) {
    let Some(path) = installed(&format!("hosts/node_modules/.bin/{program}")) else {
        testkit::skip!("needs {program} in the directory GLOVEBOX_TEST_CLIENTS");
    };
    Person::each(|person| {
        if !can_reach(person, &path) {
            return;
        }
        person.write("project/a.txt", "mine\n");
        let model = ModelServer::replying(reply);
        let modules = path.ancestors().nth(2).unwrap();
        let mut call = person.glovebox([
            "run",
            "--net",
            "host",
            "--apply",
            "auto",
            "--timeout",
            "100s",
        ]);
        call = call
            .args(flags)
            .args(["--grant".as_ref(), modules.as_os_str()]);
        let ran = call
            .env("ANTHROPIC_BASE_URL", model.url())
            .env("ANTHROPIC_API_KEY", "sk-scripted")
            .args(["--env", "ANTHROPIC_BASE_URL", "--env", "ANTHROPIC_API_KEY"])
            .args(["--env", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "--"])
            .args([&path])
            .args(words(&model.url()))
            .run();
        let asked = model.asked();
        assert!(ran.out().contains("all is done"), "{ran}\n{asked:?}");
        let last = asked.iter().max_by_key(|asked| asked.body.len()).unwrap();
        // `id -un` inside: the sandbox's own user, whoever the agent's user is.
        assert!(last.body.contains("sandbox"), "{last:?}");
        let made = fs::read_to_string(person.project().join("made.txt"));
        assert_eq!(
            made.ok().as_deref(),
            Some("made-inside\n"),
            "{ran}\n{last:?}"
        );
        // Its home was the sandbox's.
        let home: Vec<_> = fs::read_dir(person.place().home())
            .unwrap()
            .flatten()
            .collect();
        assert!(
            home.iter()
                .all(|entry| !entry.file_name().to_string_lossy().contains(program)),
            "{home:?}"
        );
        person.assert_nothing_left();
    });
}

#[test]
fn claude_code_works_inside() {
    does_its_work("claude", &[], |_| {
        [
            "-p",
            "do it",
            "--allowedTools",
            "Bash",
            "--model",
            "claude-sonnet-4-5",
        ]
        .map(str::to_owned)
        .to_vec()
    });
}

/// With a sandbox of its own around each command, as it comes.
#[test]
fn codex_works_inside_with_its_own_sandbox() {
    // Codex puts a link to itself into its home, and refuses a home in the directory for temporary files, where that of
    // a test is.
    does_its_work("codex", &["--nested", "--env", "TMPDIR=/var/tmp"], |url| {
        codex(url, &["--sandbox", "workspace-write"])
    });
}

fn codex(url: &str, mode: &[&str]) -> Vec<String> {
    let provider = format!(
        "model_providers.scripted={{name=\"scripted\",base_url=\"{url}/v1\",wire_api=\"responses\"}}"
    );
    [
        "exec",
        "-c",
        "model=\"scripted\"",
        "-c",
        "model_provider=\"scripted\"",
        "-c",
        &provider,
    ]
    .into_iter()
    .chain(mode.iter().copied())
    .chain(["--skip-git-repo-check", "do it"])
    .map(str::to_owned)
    .collect()
}

/// With that sandbox turned off, Glovebox's walls are the only ones, and `--nested` is not needed.
#[test]
fn codex_works_inside_without_its_own_sandbox() {
    does_its_work("codex", &[], |url| {
        codex(url, &["--dangerously-bypass-approvals-and-sandbox"])
    });
}
