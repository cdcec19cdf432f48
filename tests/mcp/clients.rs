//! Real clients: what they do lands in the sandbox only, and `glovebox pull` brings it out.

use crate::site::{Site, TOKEN};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Person, installed};

macro_rules! client {
    ($path:literal) => {
        match installed($path) {
            Some(program) => program,
            None => testkit::skip!("needs {} in the directory GLOVEBOX_TEST_CLIENTS", $path),
        }
    };
}

/// Settings that are there to be copied are well-formed and start what they say.
#[test]
fn examples_are_as_their_clients_read_them() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/mcp");
    let table = fs::read_to_string(dir.join("README.md")).unwrap();
    let mut seen = 0;
    for entry in fs::read_dir(&dir).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        assert!(
            name == "README.md" || table.contains(&format!("({name})")),
            "{name}"
        );
        let text = fs::read_to_string(entry.path()).unwrap();
        if entry.path().extension().is_none_or(|kind| kind != "json") {
            continue;
        }
        seen += 1;
        let settings: Value = serde_json::from_str(&text).unwrap();
        let servers = settings
            .get("mcpServers")
            .or_else(|| settings.get("servers"));
        let server = &servers.unwrap()["glovebox"];
        let is_local = server["command"] == "glovebox" && server["args"][0] == "mcp";
        let is_remote = server["url"]
            .as_str()
            .is_some_and(|url| url.ends_with("/mcp"));
        assert!(is_local || is_remote, "{name}: {server}");
    }
    assert!(seen >= 5);
}

fn project() -> Person {
    let person = Person::myself();
    person.write("project/a.txt", "one\ntwo\n");
    person.write("project/src/main.py", "print(1)\n");
    person
}

/// A client's command, in the project and with the person's own state.
pub(crate) fn command(person: &Person, program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .env("HOME", person.place().home())
        .env("GLOVEBOX_STATE", person.place().state())
        .env("LANG", "C.UTF-8")
        .current_dir(person.project());
    command
}

pub(crate) fn run(mut command: Command) -> String {
    let output = command.output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    out
}

/// The one sandbox there is brings out what the driver did; nothing of it was here before.
fn pull_out(person: &Person) {
    let a = person.project().join("a.txt");
    assert_eq!(fs::read_to_string(&a).unwrap(), "one\ntwo\n");
    assert!(!person.project().join("new").exists());
    let mut found = Vec::new();
    let is_kept = testkit::wait_until(std::time::Duration::from_secs(20), || {
        let list = person.line("list --json").run().expect_code(0);
        let list: Value = serde_json::from_slice(&list.stdout).unwrap();
        found.clone_from(list["data"]["sandboxes"].as_array().unwrap());
        found.len() == 1 && found[0]["state"] == "stopped"
    });
    assert!(is_kept, "{found:?}");
    let name = found[0]["name"].as_str().unwrap();
    let _ = person.line(&format!("pull {name}")).run().expect_code(0);
    assert_eq!(fs::read_to_string(&a).unwrap(), "one\nthree\n");
    let new = fs::read_to_string(person.project().join("new/file.txt")).unwrap();
    assert_eq!(new, "from an agent\n");
    let _ = person.line(&format!("kill {name}")).run().expect_code(0);
    person.assert_nothing_left();
}

fn driver() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("mcp/drive.py")
}

#[test]
fn the_python_sdk_drives_every_tool_over_pipes() {
    let python = client!("python/bin/python3");
    let person = project();
    let mut drive = command(&person, &python);
    drive.arg(driver()).arg("stdio").arg(person.binary());
    assert!(run(drive).ends_with("ok\n"));
    pull_out(&person);
}

#[test]
fn the_python_sdk_drives_every_tool_over_http() {
    let python = client!("python/bin/python3");
    let person = project();
    let site = Site::open(&person, "");
    let mut drive = command(&person, &python);
    drive.arg(driver()).args(["http", &site.url(), TOKEN]);
    assert!(run(drive).ends_with("ok\n"));
    site.told("changes are kept");
    pull_out(&person);
}

/// Every tool, with arguments as the inspector takes them, and a part of what it answers.
const CALLS: [(&str, &[&str], &str); 9] = [
    ("Read", &["path=a.txt"], "2\\ttwo"),
    ("List", &["path=."], "src/"),
    ("Glob", &["pattern=**/*.py"], "src/main.py"),
    ("Grep", &["pattern=tw[o]"], "two"),
    (
        "Write",
        &["path=new/file.txt", "content=from an agent"],
        "new/file.txt",
    ),
    ("Edit", &["path=a.txt", "old=two", "new=three"], "+three"),
    ("Bash", &["command=cat new/file.txt"], "from an agent"),
    ("Code", &["language=python", "source=print(6 * 7)"], "42"),
    ("Job", &["action=list"], "cat new/file.txt"),
];

fn inspect(person: &Person, inspector: &Path, server: &[&str], call: &[&str]) -> String {
    let mut inspect = command(person, inspector);
    inspect.arg("--cli").args(server).args(call);
    run(inspect)
}

fn inspect_every_tool(person: &Person, inspector: &Path, server: &[&str]) {
    let tools = inspect(person, inspector, server, &["--method", "tools/list"]);
    for (tool, arguments, part) in CALLS {
        assert!(tools.contains(&format!("\"name\": \"{tool}\"")), "{tools}");
        let mut call = vec!["--method", "tools/call", "--tool-name", tool];
        for argument in arguments {
            call.extend(["--tool-arg", argument]);
        }
        let answer = inspect(person, inspector, server, &call);
        assert!(
            answer.contains(part) && answer.contains("\"isError\": false"),
            "{tool}: {answer}"
        );
    }
    let changes = ["--method", "resources/read", "--uri", "glovebox://changes"];
    let changes = inspect(person, inspector, server, &changes);
    assert!(changes.contains("+three"), "{changes}");
}

fn after_inspection(person: &Person) {
    let a = person.project().join("a.txt");
    assert_eq!(fs::read_to_string(&a).unwrap(), "one\ntwo\n");
    let _ = person.line("pull box").run().expect_code(0);
    assert_eq!(fs::read_to_string(&a).unwrap(), "one\nthree\n");
    let _ = person.line("kill box").run().expect_code(0);
    person.assert_nothing_left();
}

#[test]
fn the_inspector_uses_every_tool_over_pipes() {
    let inspector = client!("node/node_modules/.bin/mcp-inspector");
    let person = project();
    let _ = person.line("start box").run().expect_code(0);
    let settings = person.write(
        "home/inspector.json",
        serde_json::json!({ "mcpServers": { "glovebox": {
            "command": person.binary(),
            "args": ["mcp", "--sandbox", "box"],
            "env": { "GLOVEBOX_STATE": person.place().state() },
        }}})
        .to_string(),
    );
    let settings = settings.to_str().unwrap();
    inspect_every_tool(
        &person,
        &inspector,
        &["--config", settings, "--server", "glovebox"],
    );
    after_inspection(&person);
}

#[test]
fn the_inspector_uses_every_tool_over_http() {
    let inspector = client!("node/node_modules/.bin/mcp-inspector");
    let person = project();
    let _ = person.line("start box").run().expect_code(0);
    let site = Site::open(&person, "--sandbox box");
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let server = [&site.url(), "--transport", "http", "--header", &bearer];
    inspect_every_tool(&person, &inspector, &server);
    drop(site);
    after_inspection(&person);
}
