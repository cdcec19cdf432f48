//! One user's Apply beside another user's session over the same source, also when it is cut in the middle: nobody's
//! work is lost, and no half of it stays.

use crate::server::{Client, PATIENCE, Server, recording, token};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Person, has_program, skip, wait_until};

/// The source's files before any session: some are replaced, one goes, one is only the user's.
fn lay_source(person: &Person) -> PathBuf {
    for name in ["a", "b", "c", "d", "held"] {
        person.write(format!("srv/{name}"), "old\n");
    }
    person.write("srv/dir/x", "old\n");
    person.write("srv/mine", "the operator's own\n");
    person.place().root().join("srv").canonicalize().unwrap()
}

/// Commands of the agents: what one of them changes, and what another one looks up before.
const CHANGE: &str =
    "for f in a b d held; do echo new > $f; done; rm c; mkdir e; mv dir/x e/x; echo new > more";
const LOOK_UP: &str = "cat a b c d dir/x > /dev/null; ls -R > /dev/null; echo bob > bobs; \
    (exec 3<held; exec sleep 300) >/dev/null 2>&1 & echo $! > /tmp/holder";
/// Prints each file that both agents see.
const LIST: &str =
    "find . -type f ! -path './.git*' ! -name bobs ! -name held -exec sha256sum {} + | sort -k2";

/// Runs a command on the machine, in the source.
fn on_machine(dir: &Path, command: &str) -> String {
    let mut shell = Command::new("sh");
    let ran = shell.args(["-c", command]).current_dir(dir).output();
    String::from_utf8(ran.unwrap().stdout).unwrap()
}

/// A user with a session over the source, and its sandbox.
struct Worker {
    client: Client,
    session: String,
    sandbox: String,
}

impl Worker {
    fn begin(client: Client) -> Self {
        let task = json!({ "task": "work", "workspace": { "source": "lib" } });
        let session = client.submit(&task);
        client.follow_to_end(&session);
        let view = client.get(&format!("/api/sessions/{session}")).expect(200);
        let sandbox = view.json()["sandbox"].as_str().unwrap().to_owned();
        Self {
            client,
            session,
            sandbox,
        }
    }

    /// The same at a server that was started again.
    fn at(&self, server: &Server, token: &str) -> Self {
        Self {
            client: server.client(token),
            session: self.session.clone(),
            sandbox: self.sandbox.clone(),
        }
    }

    /// Runs a command in the sandbox. Returns what a model is told.
    fn bash(&self, command: &str) -> String {
        let call = json!({ "tool": "Bash", "arguments": { "command": command } });
        let path = format!("/api/sandboxes/{}/call", self.sandbox);
        let called = self.client.post(&path, &call).expect(200).json();
        called["text"].as_str().unwrap().to_owned()
    }

    fn apply(&self) -> (u16, Value) {
        let path = format!("/api/sessions/{}/apply", self.session);
        let answer = self.client.post(&path, &json!({}));
        (answer.status, answer.json())
    }

    /// Waits until the sandbox sees the files of the source as they are on the machine. Returns all that a model was
    /// told meanwhile.
    fn await_same(&self, dir: &Path) -> String {
        let expected = on_machine(dir, LIST);
        let (mut seen, mut told) = (String::new(), String::new());
        let is_same = wait_until(PATIENCE, || {
            seen = self.bash(LIST);
            told.push_str(&seen);
            seen.starts_with(expected.trim_end())
        });
        assert!(is_same, "{seen}\nis not\n{expected}");
        told
    }
}

/// Two users who have worked over one source: the first has changed it, the second has looked everything up.
fn two_workers(person: &Person, server: &Server) -> ([String; 2], [Worker; 2]) {
    let tokens =
        ["ann", "bob"].map(|name| token(person, &format!("{name} --scope run --scope apply")));
    let workers = tokens
        .each_ref()
        .map(|token| Worker::begin(server.client(token)));
    workers[0].bash(CHANGE);
    workers[1].bash(LOOK_UP);
    (tokens, workers)
}

#[test]
fn apply_of_one_user_is_one_moment_for_another_who_is_told() {
    let person = Person::myself();
    let dir = lay_source(&person);
    let model = recording(&person, "work", &[]);
    let server = Server::start(
        &person,
        &format!("--model {model} --source lib={}", dir.display()),
    );
    let (_, [ann, bob]) = two_workers(&person, &server);
    let (status, outcome) = ann.apply();
    assert_eq!(status, 200, "{outcome}");
    let mut told = bob.await_same(&dir);
    // The model hears it once; what a process has open is old until that closes it.
    let is_told = wait_until(PATIENCE, || {
        told.push_str(&bob.bash("cat held bobs"));
        told.contains("files of the project")
    });
    assert!(is_told, "{told}");
    assert_eq!(told.matches("while you work").count(), 1, "{told}");
    assert!(bob.bash("cat held bobs").starts_with("old\nbob"));
    let info = person.line(&format!("info --json {}", bob.sandbox)).run();
    let info: Value = serde_json::from_str(&info.expect_code(0).out()).unwrap();
    let changes = &info["data"]["project_changed"];
    assert_eq!(changes.as_array().unwrap().len(), 1, "{changes}");
    assert_eq!(changes[0]["still_old"], json!(["held"]), "{changes}");
    bob.bash("kill $(cat /tmp/holder)");
    let is_new = wait_until(PATIENCE, || bob.bash("cat held").starts_with("new"));
    assert!(is_new, "what was held open is new once it is closed");
    // His own work is there, and goes the same way.
    assert_eq!(bob.apply().0, 200);
    let kept = on_machine(&dir, "cat bobs a mine");
    assert_eq!(kept, "bob\nnew\nthe operator's own\n");
}

/// The program by a name of its own: a script can take its place while a server runs from it.
struct OwnProgram {
    path: PathBuf,
    real: PathBuf,
}

impl OwnProgram {
    /// `None` where nothing can be traced.
    fn make(person: &Person) -> Option<Self> {
        let trace = || {
            Command::new("strace")
                .args(["-qq", "-o", "/dev/null", "true"])
                .status()
        };
        if !has_program("strace") || !trace().is_ok_and(|status| status.success()) {
            return None;
        }
        let dir = person.place().root().join("bin");
        fs::create_dir_all(&dir).unwrap();
        let own = Self {
            path: dir.join("glovebox"),
            real: person.binary().canonicalize().unwrap(),
        };
        own.mend();
        Some(own)
    }

    /// The program itself.
    fn mend(&self) {
        let fresh = self.path.with_extension("fresh");
        if fs::hard_link(&self.real, &fresh).is_err() {
            fs::copy(&self.real, &fresh).unwrap();
        }
        fs::rename(fresh, &self.path).unwrap();
    }

    /// From now on a process that applies changes is killed at its `nth` system call of this name, and with
    /// `also_server` the server after it.
    fn cut(&self, call: &str, nth: u32, also_server: bool) {
        let real = self.real.display();
        let end = if also_server {
            "kill -9 $PPID"
        } else {
            "exit 1"
        };
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = __commit ] || exec {real} \"$@\"\n\
             strace -f -qq -o /dev/null -e trace={call} -e inject={call}:signal=KILL:when={nth} {real} \"$@\"\n{end}\n"
        );
        let fresh = self.path.with_extension("fresh");
        fs::write(&fresh, script).unwrap();
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(fresh, &self.path).unwrap();
    }
}

#[test]
fn apply_whose_process_is_killed_leaves_all_or_nothing_at_once() {
    let person = Person::myself();
    let Some(program) = OwnProgram::make(&person) else {
        skip!("needs strace and the right to trace");
    };
    let dir = lay_source(&person);
    let model = recording(&person, "work", &[]);
    let args = format!("--model {model} --source lib={}", dir.display());
    let server = Server::start_program(&person, &program.path, &args);
    let (_, [ann, bob]) = two_workers(&person, &server);
    let everything = "find . -type f -exec sha256sum {} + | sort -k2";
    let before = on_machine(&dir, everything);
    // In the middle: what was done is undone before the user is answered.
    program.cut("renameat2", 4, false);
    let (status, answer) = ann.apply();
    assert_eq!(status, 500, "{answer}");
    let error = &answer["error"];
    assert_eq!(error["is_retryable"], true, "{error}");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("is as it was before"),
        "{error}"
    );
    assert_eq!(on_machine(&dir, everything), before);
    bob.await_same(&dir);
    // At its end: everything is there, and the user is told so.
    program.cut("unlinkat", 1, false);
    let (status, outcome) = ann.apply();
    assert_eq!(status, 200, "{outcome}");
    assert_eq!(
        on_machine(&dir, "cat a b d held more e/x mine; ls -A | grep glovebox"),
        "new\nnew\nnew\nnew\nnew\nold\nthe operator's own\n"
    );
    bob.await_same(&dir);
}

/// Kills an Apply at a system call, and the server with it. Returns the source, and both users at the next server.
fn cut_with_server(
    person: &Person,
    program: &OwnProgram,
    call: &str,
    nth: u32,
) -> (PathBuf, Server, [Worker; 2]) {
    let dir = lay_source(person);
    let model = recording(person, "work", &[]);
    let args = format!("--model {model} --source lib={}", dir.display());
    let mut server = Server::start_program(person, &program.path, &args);
    let (tokens, [ann, bob]) = two_workers(person, &server);
    program.cut(call, nth, true);
    ann.client
        .attempt(&format!("/api/sessions/{}/apply", ann.session), &json!({}));
    server.child.wait().unwrap();
    program.mend();
    let server = Server::start(person, &args);
    let workers = [ann.at(&server, &tokens[0]), bob.at(&server, &tokens[1])];
    (dir, server, workers)
}

#[test]
fn apply_that_dies_with_its_server_is_undone_by_the_next_one_and_edits_stay() {
    let person = Person::myself();
    let Some(program) = OwnProgram::make(&person) else {
        skip!("needs strace and the right to trace");
    };
    let (dir, _server, [ann, bob]) = cut_with_server(&person, &program, "renameat2", 4);
    let replaced = on_machine(&dir, "grep -lx new a b d held");
    let replaced: Vec<&str> = replaced.lines().collect();
    assert!(
        (1..4).contains(&replaced.len()),
        "not in the middle: {replaced:?}"
    );
    // The operator works on what lies there by halves.
    let edited = replaced[0];
    fs::write(dir.join(edited), "edited\n").unwrap();
    let (status, outcome) = ann.apply();
    assert_eq!(status, 200, "{outcome}");
    let conflicts = outcome["outcome"]["conflicts"].to_string();
    assert!(conflicts.contains(&format!("\"{edited}\"")), "{outcome}");
    let others: Vec<&str> = ["a", "b", "d", "held"]
        .into_iter()
        .filter(|name| *name != edited)
        .collect();
    let shown = on_machine(
        &dir,
        &format!(
            "cat {edited} {edited}.orig {} more e/x mine",
            others.join(" ")
        ),
    );
    assert_eq!(
        shown,
        "edited\nold\nnew\nnew\nnew\nnew\nold\nthe operator's own\n"
    );
    let gone = on_machine(&dir, "ls -A . dir");
    assert!(
        !dir.join("c").exists() && !dir.join("dir/x").exists(),
        "{gone}{outcome}"
    );
    bob.await_same(&dir);
    assert!(bob.bash("cat bobs").starts_with("bob"));
}

#[test]
fn apply_that_dies_with_its_server_at_its_end_is_heard_of() {
    let person = Person::myself();
    let Some(program) = OwnProgram::make(&person) else {
        skip!("needs strace and the right to trace");
    };
    // Everything is in place, and others were told, although nothing is left to tell a later one.
    let (dir, server, [_, bob]) = cut_with_server(&person, &program, "unlinkat", 2);
    assert_eq!(on_machine(&dir, "cat a more"), "new\nnew\n");
    bob.await_same(&dir);
    drop(server);
    // Everything is in place and nobody was told: the next one to this place tells.
    let person = Person::myself();
    let program = OwnProgram::make(&person).unwrap();
    let (dir, _server, [_, bob]) = cut_with_server(&person, &program, "flock", 2);
    assert_eq!(on_machine(&dir, "cat a more"), "new\nnew\n");
    assert_eq!(bob.apply().0, 200);
    bob.await_same(&dir);
    assert_eq!(on_machine(&dir, "cat bobs; ls -A | grep glovebox"), "bob\n");
}
