//! With a terminal: the real thing inside, and the user's own given back as it was.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use testkit::{Person, Process, wait_until};

/// A terminal of the test's own with a program in it.
struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    child: Child,
}

fn open_pair() -> (OwnedFd, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = rustix::fs::open(
        &name,
        OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .unwrap();
    (ours, theirs)
}

impl Terminal {
    /// Runs `glovebox ARGS` in a session whose terminal this is.
    fn run(person: &Person, args: &[&str]) -> Self {
        let (ours, theirs) = open_pair();
        if testkit::is_root() && !person.is_root() {
            rustix::fs::fchown(
                &theirs,
                Some(rustix::fs::Uid::from_raw(testkit::UNPRIVILEGED_ID)),
                None,
            )
            .unwrap();
        }
        tcsetwinsize(
            &ours,
            Winsize {
                ws_row: 33,
                ws_col: 111,
                ws_xpixel: 0,
                ws_ypixel: 0,
            },
        )
        .unwrap();
        let mut command: Command = person.program("setsid");
        command
            .arg("--ctty")
            .arg("--wait")
            .arg(person.binary())
            .args(args)
            .env("TERM", "xterm");
        let stdio = || Stdio::from(theirs.try_clone().unwrap());
        let child = command
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .unwrap();
        let keyboard = File::from(ours);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut reader, shown) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Ends with an error when the last program has closed the terminal.
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                shown
                    .lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        });
        Self {
            keyboard,
            screen,
            child,
        }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until `text` is on the screen.
    fn see(&self, text: &str) {
        let is_there = wait_until(Duration::from_secs(15), || self.text().contains(text));
        assert!(is_there, "no `{text}` on the screen:\n{}", self.text());
    }

    fn modes(&self) -> Termios {
        tcgetattr(&self.keyboard).unwrap()
    }

    /// Its exit code, and whether the terminal is as it was.
    fn end(mut self) -> i32 {
        let is_over = wait_until(Duration::from_secs(15), || {
            self.child.try_wait().unwrap().is_some()
        });
        if !is_over {
            let _ = self.child.kill();
        }
        assert!(is_over, "it did not end:\n{}", self.text());
        let local = self.modes().local_modes;
        assert!(
            local.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG),
            "{local:?}"
        );
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

#[test]
fn a_command_with_a_terminal_has_one() {
    Person::each(|person| {
        let script = "test -t 0 && test -t 1 && test -t 2 && stty size && echo $((6 * 7)); exit 5";
        let terminal = Terminal::run(person, &["run", "--tty", "--", "sh", "-c", script]);
        terminal.see("33 111");
        terminal.see("42");
        assert_eq!(terminal.end(), 5);
        person.assert_nothing_left();
    });
}

#[test]
fn a_shell_is_worked_in_like_any_other() {
    Person::each(|person| {
        let mut terminal = Terminal::run(person, &["run", "--tty", "--", "sh"]);
        terminal.type_keys("echo first-$((1 + 1))\r");
        terminal.see("first-2");
        assert!(
            !terminal.modes().local_modes.contains(LocalModes::ECHO),
            "the terminal is not raw"
        );
        // Ctrl-C reaches what runs in it, not glovebox.
        terminal.type_keys("sleep 4321\r");
        assert!(wait_until(Duration::from_secs(10), || {
            !Process::mentioning("sleep 4321").is_empty()
        }));
        terminal.type_keys("\x03");
        terminal.type_keys("echo second-$((2 + 2))\r");
        terminal.see("second-4");
        // A new size arrives.
        tcsetwinsize(
            &terminal.keyboard,
            Winsize {
                ws_row: 44,
                ws_col: 122,
                ws_xpixel: 0,
                ws_ypixel: 0,
            },
        )
        .unwrap();
        assert!(wait_until(Duration::from_secs(10), || {
            terminal.type_keys("stty size\r");
            thread::sleep(Duration::from_millis(200));
            terminal.text().contains("44 122")
        }));
        // Ctrl-D ends it.
        terminal.type_keys("\x04");
        assert_eq!(terminal.end(), 0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_terminal_is_given_back_when_the_sandbox_dies() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        let mut terminal = Terminal::run(person, &["attach", "box"]);
        terminal.type_keys("echo here-$((3 * 3))\r");
        terminal.see("here-9");
        let _ = person.line("kill box").run().expect_code(0);
        let code = terminal.end();
        assert_eq!(code, 4);
        person.assert_nothing_left();
    });
}

#[test]
fn leaving_a_shell_lets_it_run_and_coming_back_finds_it() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        let mut terminal = Terminal::run(person, &["attach", "box"]);
        terminal.type_keys("kept=still-$((8 * 8))\r");
        terminal.type_keys("echo ready-$((1 + 2))\r");
        terminal.see("ready-3");
        terminal.type_keys("\x1c");
        assert_eq!(terminal.end(), 0);

        let jobs = person.line("logs box --json").run().expect_code(0).out();
        assert!(jobs.contains("running"), "{jobs}");
        let mut terminal = Terminal::run(person, &["attach", "box", "--job", "1"]);
        // Keys typed before it is connected would be lost with the old settings of the terminal.
        assert!(wait_until(Duration::from_secs(10), || !terminal
            .modes()
            .local_modes
            .contains(LocalModes::ECHO)));
        terminal.type_keys("echo $kept\r");
        terminal.see("still-64");
        terminal.type_keys("exit\r");
        assert_eq!(terminal.end(), 0);
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_terminal_needs_a_terminal() {
    Person::each(|person| {
        let ran = person.line("run --tty -- true").run().expect_code(125);
        assert!(ran.err().contains("not a terminal"), "{ran}");
        let _ = person.line("start box").run().expect_code(0);
        let ran = person.line("attach box").run().expect_code(2);
        assert!(ran.err().contains("terminal"), "{ran}");
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}
