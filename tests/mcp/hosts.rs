//! The agents people have, as their makers ship them, against a scripted model: what the model is sent contains what
//! each tool said, and the user finds the work.

use crate::clients::command;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::{Asked, ModelServer, Person, Step, installed, wait_until};

/// A call of each tool, and what it says that stands in no call.
const CALLS: [(&str, &str, &str); 11] = [
    ("Read", r#"{"path":"w.txt"}"#, "read-from-the-file"),
    ("List", r#"{"path":"."}"#, "listed-directory"),
    ("Glob", r#"{"pattern":"listed-*/*"}"#, "found-by-name.txt"),
    ("Grep", r#"{"pattern":"need[l]e"}"#, "needle-in-the-hay"),
    (
        "Write",
        r#"{"path":"new.txt","content":"one\n"}"#,
        "new.txt",
    ),
    (
        "Edit",
        r#"{"path":"w.txt","old":"file","new":"box"}"#,
        "+read-from-the-box",
    ),
    ("Bash", r#"{"command":"echo bash-$((6 * 7))"}"#, "bash-42"),
    (
        "Code",
        r#"{"language":"python","source":"print('code-%d' % (6 * 7))"}"#,
        "code-42",
    ),
    (
        "RunJS",
        r#"{"source":"print('script-' + 6 * 7)"}"#,
        "script-42",
    ),
    (
        "Bash",
        r#"{"command":"sleep 4; echo late-$((6 * 7))"}"#,
        "is still running",
    ),
    ("Job", r#"{"action":"wait","id":4}"#, "late-42"),
];

/// One of the agents.
struct Host {
    program: &'static str,
    /// The name of a tool as it has it.
    tool: fn(&str) -> String,
    /// What stands in a request once for each result.
    result: &'static str,
    /// Its settings, and the command that gives it a task.
    prepare: fn(&Person, &str, &Path) -> Command,
}

/// How the server is started: waits are short, so that one of them is over.
fn server(person: &Person) -> (String, Value) {
    let program = person.binary().to_str().unwrap().to_owned();
    let env = json!({ "GLOVEBOX_STATE": person.place().state() });
    (program, env)
}

const ARGS: [&str; 3] = ["mcp", "--max-wait", "2s"];

fn claude(person: &Person, url: &str, program: &Path) -> Command {
    let (glovebox, env) = server(person);
    let settings =
        json!({ "mcpServers": { "glovebox": { "command": glovebox, "args": ARGS, "env": env } } });
    let settings = person.write("home/mcp.json", settings.to_string());
    let mut command = command(person, program);
    command
        .env("ANTHROPIC_BASE_URL", url)
        .env("ANTHROPIC_API_KEY", "sk-scripted")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .args(["-p", "do it", "--strict-mcp-config", "--mcp-config"])
        .arg(settings)
        .args([
            "--allowedTools",
            "mcp__glovebox",
            "--model",
            "claude-sonnet-4-5",
        ]);
    command
}

fn codex(person: &Person, url: &str, program: &Path) -> Command {
    let (glovebox, env) = server(person);
    let state = env["GLOVEBOX_STATE"].as_str().unwrap();
    let settings = format!(
        "model = \"scripted\"\nmodel_provider = \"scripted\"\n\
         [model_providers.scripted]\nname = \"scripted\"\nbase_url = \"{url}/v1\"\nwire_api = \"responses\"\n\
         [mcp_servers.glovebox]\ncommand = \"{glovebox}\"\nargs = {ARGS:?}\nrequired = true\n\
         startup_timeout_sec = 60\nenv = {{ GLOVEBOX_STATE = \"{state}\" }}\n"
    );
    person.write("home/.codex/config.toml", settings);
    let mut command = command(person, program);
    command.args([
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "do it",
    ]);
    command
}

fn gemini(person: &Person, url: &str, program: &Path) -> Command {
    let (glovebox, env) = server(person);
    let settings = json!({
        "mcpServers": { "glovebox": { "command": glovebox, "args": ARGS, "env": env, "trust": true } },
        "security": { "auth": { "selectedType": "gemini-api-key" } },
        "privacy": { "usageStatisticsEnabled": false },
    });
    person.write("home/.gemini/settings.json", settings.to_string());
    let mut command = command(person, program);
    command
        .env("GEMINI_API_KEY", "scripted")
        .env("GOOGLE_GEMINI_BASE_URL", url)
        .args([
            "--skip-trust",
            "-y",
            "-m",
            "gemini-2.5-flash",
            "-p",
            "do it",
        ]);
    command
}

fn opencode(person: &Person, url: &str, program: &Path) -> Command {
    let (glovebox, env) = server(person);
    let words: Vec<&str> = [glovebox.as_str()].into_iter().chain(ARGS).collect();
    let settings = json!({
        "autoupdate": false, "share": "disabled", "model": "scripted/m", "small_model": "scripted/m",
        "provider": { "scripted": {
            "npm": "@ai-sdk/openai-compatible",
            "options": { "baseURL": format!("{url}/v1"), "apiKey": "scripted" },
            "models": { "m": { "tool_call": true } },
        } },
        "mcp": { "glovebox": { "type": "local", "command": words, "environment": env } },
    });
    person.write("home/.config/opencode/opencode.json", settings.to_string());
    let mut command = command(person, program);
    command
        .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
        .args(["run", "do it"]);
    command
}

const HOSTS: [Host; 4] = [
    Host {
        program: "claude",
        tool: |tool| format!("mcp__glovebox__{tool}"),
        result: "\"type\":\"tool_result\"",
        prepare: claude,
    },
    Host {
        program: "codex",
        tool: |tool| format!("mcp__glovebox/{tool}"),
        result: "\"type\":\"function_call_output\"",
        prepare: codex,
    },
    Host {
        program: "gemini",
        tool: |tool| format!("mcp_glovebox_{tool}"),
        result: "\"functionResponse\":",
        prepare: gemini,
    },
    Host {
        program: "opencode",
        tool: |tool| format!("glovebox_{tool}"),
        result: "\"role\":\"tool\"",
        prepare: opencode,
    },
];

/// The next call of the script, by the results that a request has.
fn reply(host: &'static Host) -> impl Fn(&Asked) -> Step + Send + Sync + 'static {
    move |asked| {
        // Titles and summaries are asked for beside the conversation, without tools.
        if !asked.body.contains("RunJS") {
            return Step::text("a title");
        }
        let results = asked.body.matches(host.result).count();
        match CALLS.get(results) {
            Some((tool, arguments, _)) => Step::call(&(host.tool)(tool), arguments),
            None => Step::text("all is done"),
        }
    }
}

fn does_all(host: &'static Host) {
    let Some(program) = installed(&format!("hosts/node_modules/.bin/{}", host.program)) else {
        testkit::skip!(
            "needs {} in the directory GLOVEBOX_TEST_CLIENTS",
            host.program
        );
    };
    let person = Person::myself();
    person.write("project/w.txt", "read-from-the-file\n");
    person.write(
        "project/listed-directory/found-by-name.txt",
        "needle-in-the-hay\n",
    );
    let model = ModelServer::replying(reply(host));
    let mut run = (host.prepare)(&person, &model.url(), &program);
    let output = run.stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("all is done"),
        "{}: {told}\n{err}",
        host.program
    );
    // The whole conversation is in the longest request of it.
    let asked = model.asked();
    let last = asked
        .iter()
        .max_by_key(|asked| asked.body.matches(host.result).count())
        .unwrap();
    assert_eq!(
        last.body.matches(host.result).count(),
        CALLS.len(),
        "{last:?}"
    );
    for (tool, arguments, said) in CALLS {
        assert!(!arguments.contains(said) || tool == "Write");
        assert!(
            last.body.contains(said),
            "{}, {tool}: {}",
            host.program,
            last.body
        );
    }
    // Nothing of it is here before the user takes it over, without having been told a name.
    assert!(!person.project().join("new.txt").exists());
    let mut list = Value::Null;
    let is_kept = wait_until(std::time::Duration::from_secs(30), || {
        let ran = person.line("list --json").run().expect_code(0);
        list = serde_json::from_slice(&ran.stdout).unwrap();
        // Some end a server with all that it started; what was changed is kept then as well.
        let state = &list["data"]["sandboxes"][0]["state"];
        state == "stopped" || state == "lost"
    });
    assert!(is_kept, "{list}");
    let kept = person.sandboxes().remove(0);
    let name = kept.file_name().unwrap().to_str().unwrap();
    assert!(last.body.contains(name), "{name}");
    let _ = person.line("pull").run().expect_code(0);
    let new = fs::read_to_string(person.project().join("new.txt")).unwrap();
    assert_eq!(new, "one\n");
    let changed = fs::read_to_string(person.project().join("w.txt")).unwrap();
    assert_eq!(changed, "read-from-the-box\n");
    let _ = person.line("kill --all").run().expect_code(0);
    person.assert_nothing_left();
}

#[test]
fn claude_code_hands_its_model_what_the_tools_say() {
    does_all(&HOSTS[0]);
}

#[test]
fn codex_hands_its_model_what_the_tools_say() {
    does_all(&HOSTS[1]);
}

#[test]
fn gemini_cli_hands_its_model_what_the_tools_say() {
    does_all(&HOSTS[2]);
}

#[test]
fn opencode_hands_its_model_what_the_tools_say() {
    does_all(&HOSTS[3]);
}
