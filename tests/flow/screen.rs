//! A terminal of a test's own: what is typed, and what is on the screen.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use testkit::{Person, wait_until};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// How often the thread that reads looks whether it is to end.
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// A terminal of the test's own with a program in it.
pub(crate) struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    child: Child,
    /// Set when nothing is read any more.
    is_closed: Arc<AtomicBool>,
    reader: JoinHandle<()>,
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
    pub(crate) fn run(person: &Person, args: &[&str]) -> Self {
        Self::start(person, person.binary().as_ref(), args, &[])
    }

    /// The same with another program.
    pub(crate) fn run_program(person: &Person, program: impl AsRef<OsStr>, args: &[&str]) -> Self {
        Self::start(person, program.as_ref(), args, &[])
    }

    /// Another program with more variables.
    pub(crate) fn run_program_with(
        person: &Person,
        program: impl AsRef<OsStr>,
        args: &[&str],
        variables: &[[&str; 2]],
    ) -> Self {
        Self::start(person, program.as_ref(), args, variables)
    }

    /// `glovebox ARGS` with more variables.
    pub(crate) fn run_with(person: &Person, args: &[&str], variables: &[[&str; 2]]) -> Self {
        Self::start(person, person.binary().as_ref(), args, variables)
    }

    fn start(person: &Person, program: &OsStr, args: &[&str], variables: &[[&str; 2]]) -> Self {
        let (ours, theirs) = open_pair();
        if testkit::is_root() && !person.is_root() {
            rustix::fs::fchown(
                &theirs,
                Some(rustix::fs::Uid::from_raw(testkit::UNPRIVILEGED_ID)),
                None,
            )
            .unwrap();
        }
        set_size(&ours, 33, 111);
        let mut command: Command = person.program("setsid");
        command
            .arg("--ctty")
            .arg("--wait")
            .arg(program)
            .args(args)
            .env("TERM", "xterm")
            .envs(variables.iter().map(|[name, value]| (name, value)));
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
        let is_closed = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_closed);
        let reader = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while !stop.load(Ordering::Relaxed) {
                let mut fds = [PollFd::new(&reader, PollFlags::IN)];
                if poll(&mut fds, Some(&LOOK_AGAIN)) == Ok(0) {
                    continue;
                }
                // Ends with an error when the last program has closed the terminal.
                let Ok(read @ 1..) = reader.read(&mut buffer) else {
                    break;
                };
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
            is_closed,
            reader,
        }
    }

    pub(crate) fn text(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    pub(crate) fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until `text` is on the screen.
    pub(crate) fn see(&self, text: &str) {
        let is_there = wait_until(PATIENCE, || self.text().contains(text));
        assert!(is_there, "no `{text}` on the screen:\n{}", self.text());
    }

    /// Gives it another size.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        set_size(&self.keyboard, rows, columns);
    }

    /// Waits until `text` is on the screen so many times.
    pub(crate) fn see_times(&self, text: &str, times: usize) {
        let count = || self.text().matches(text).count();
        let is_there = wait_until(PATIENCE, || count() >= times);
        assert!(
            is_there,
            "`{text}` is {} times on the screen:\n{}",
            count(),
            self.text()
        );
    }

    /// What is on the screen, also after its end.
    pub(crate) fn screen(&self) -> Arc<Mutex<String>> {
        Arc::clone(&self.screen)
    }

    pub(crate) fn modes(&self) -> Termios {
        tcgetattr(&self.keyboard).unwrap()
    }

    /// Closes it, as a window is closed, and waits for the end of what runs in it.
    pub(crate) fn close(self) {
        let Self {
            keyboard,
            mut child,
            is_closed,
            reader,
            ..
        } = self;
        // The thread has the other copy of the terminal.
        is_closed.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        drop(keyboard);
        let is_over = wait_until(PATIENCE, || child.try_wait().unwrap().is_some());
        assert!(is_over, "it did not end with its terminal");
    }

    /// Its exit code, and whether the terminal is as it was.
    pub(crate) fn end(mut self) -> i32 {
        let is_over = wait_until(PATIENCE, || self.child.try_wait().unwrap().is_some());
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

fn set_size(terminal: impl rustix::fd::AsFd, rows: u16, columns: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}
