//! Ctrl-C once, twice and three times: whenever it comes, nothing runs on and nothing is lost.

use super::{agent, unseen, until, with};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use testkit::{ModelServer, Person, Process, Step, await_sleepers, marker, wait_until};

/// One Ctrl-C as a terminal sends it.
const CTRL_C: &[u8] = b"\x03";

fn interrupt(child: &Child) {
    // It may have ended by itself.
    let _ = kill_process(Pid::from_child(child), Signal::INT);
}

/// A command that does not want to end, after it has written something.
fn stubborn(marker: &str) -> Step {
    let command =
        format!("echo kept > kept.txt; trap '' INT TERM HUP; sleep {marker}; sleep {marker}");
    Step::call(
        "Bash",
        &serde_json::json!({ "command": command }).to_string(),
    )
}

fn state(person: &Person) -> String {
    let ran = person.line("sessions list --json").run().expect_code(0);
    let told: Value = serde_json::from_str(&ran.out()).unwrap();
    let state = told["data"]["sessions"][0]["state"].as_str();
    state.unwrap().to_owned()
}

#[test]
fn the_third_ends_the_program_at_once_and_loses_nothing() {
    Person::each(|person| {
        let marker = marker();
        let server = ModelServer::start([stubborn(&marker), Step::text("Went on.")]);
        let mut child = unseen(agent(person, &server, ["--sandbox"], "work"));
        await_sleepers(&marker, 1);
        // It cannot do what the first two ask for: it makes no step until all three are there.
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::STOP).unwrap();
        interrupt(&child);
        kill_process(pid, Signal::TERM).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
        kill_process(pid, Signal::CONT).unwrap();
        let begin = Instant::now();
        let is_over = wait_until(Duration::from_secs(10), || {
            child.try_wait().unwrap().is_some()
        });
        if !is_over {
            let _ = child.kill();
        }
        let status = child.wait().unwrap();
        assert!(is_over, "it did not end at once: {:?}", begin.elapsed());
        // 128 and whichever of them was the third.
        assert!(
            [130, 143, 129].contains(&status.code().unwrap()),
            "{status:?}"
        );
        // What ran inside ends, and its work is where it was.
        let is_quiet = wait_until(Duration::from_secs(10), || {
            Process::mentioning(&marker).is_empty()
        });
        assert!(is_quiet, "the command goes on");
        assert_eq!(state(person), "interrupted");
        let args = ["sessions", "resume", "last", "--apply", "auto"];
        let ran = with(person, &server, args).run().expect_code(0);
        assert_eq!(ran.out(), "Went on.\n", "{ran}");
        let kept = fs::read_to_string(person.project().join("kept.txt")).unwrap();
        assert_eq!(kept, "kept\n");
        assert!(Process::mentioning(&marker).is_empty());
        person.assert_nothing_lives();
    });
}

/// `glovebox agent` on a terminal of its own.
struct AtTerminal {
    child: Child,
    shown: std::thread::JoinHandle<String>,
}

impl AtTerminal {
    fn start(person: &Person, server: &ModelServer) -> Self {
        let command = format!(
            "{} agent --model openai/scripted --sandbox work",
            person.binary().display()
        );
        let mut child = person
            .program("script")
            .args(["-qec", &command, "/dev/null"])
            .env("OPENAI_BASE_URL", server.url())
            .env("GLOVEBOX_TOOLCHAINS", "false")
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let shown = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stdout.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Self { child, shown }
    }

    fn press(&mut self, keys: &[u8]) {
        // It may have ended by itself.
        let _ = self.child.stdin.as_mut().unwrap().write_all(keys);
    }

    /// Exit code and all that was shown.
    fn end(mut self) -> (Option<i32>, String) {
        let is_over = wait_until(Duration::from_secs(30), || {
            self.child.try_wait().unwrap().is_some()
        });
        if !is_over {
            let _ = self.child.kill();
        }
        let status = self.child.wait().unwrap();
        drop(self.child.stdin.take());
        let shown = self.shown.join().unwrap();
        assert!(is_over, "{shown}");
        (status.code(), shown)
    }
}

#[test]
fn on_a_terminal_the_first_asks_and_the_second_ends_the_run() {
    if !testkit::has_program("script") {
        testkit::skip_loudly(
            "interrupts at a terminal",
            "there is no `script` to make one with",
        );
        return;
    }
    let person = Person::myself();
    let (first, second) = (marker(), marker());
    let server = ModelServer::start([
        stubborn(&first),
        stubborn(&second),
        Step::text("never said"),
    ]);
    let mut terminal = AtTerminal::start(&person, &server);
    await_sleepers(&first, 1);
    terminal.press(CTRL_C);
    // The command inside ends, and somebody is asked; the answer is the next thing to be done.
    let is_gone = wait_until(Duration::from_secs(20), || {
        Process::mentioning(&first).is_empty()
    });
    assert!(is_gone);
    terminal.press(b"do something else\n");
    until("the second request", || server.asked().len() == 2);
    assert!(server.asked()[1].body.contains("do something else"));
    await_sleepers(&second, 1);
    terminal.press(CTRL_C);
    let is_gone = wait_until(Duration::from_secs(20), || {
        Process::mentioning(&second).is_empty()
    });
    assert!(is_gone);
    terminal.press(CTRL_C);
    // Whether the change is wanted is a question as well.
    std::thread::sleep(Duration::from_millis(500));
    terminal.press(CTRL_C);
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    assert!(shown.contains("What should it do instead?"), "{shown}");
    assert_eq!(server.steps_left(), 1);
    let all = person.sandboxes();
    assert_eq!(all.len(), 1, "the change is lost: {shown}");
    let name = all[0].file_name().unwrap().to_string_lossy().into_owned();
    let _ = person.line(&format!("pull {name}")).run().expect_code(0);
    assert!(person.project().join("kept.txt").exists());
    let _ = person.line("kill --all").run().expect_code(0);
}
