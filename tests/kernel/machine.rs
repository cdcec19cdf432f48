//! The machine: one process, and what it says on its serial line.

use crate::image::Image;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The machine is killed after this long: several times what it takes.
const LIMIT: Duration = Duration::from_mins(15);
/// Lines of its console that are shown when something went wrong.
const TAIL: usize = 60;
/// What begins a line that is meant for us.
const MARK: &str = "@@ ";

/// Everything a machine said from its start to its end.
pub(crate) struct Console {
    lines: Vec<String>,
    /// What kept it from its end, in words.
    pub(crate) broken: Option<String>,
}

/// Killed when dropped. Should this process be killed, `setpriv` has the kernel do it.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Console {
    /// Starts a machine with this image, and listens until it is off.
    pub(crate) fn of(image: &Image) -> Self {
        let mut machine = start(image);
        let begun = Instant::now();
        let output = machine.0.stdout.take().unwrap();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut lines = Vec::new();
        let mut broken = None;
        loop {
            let left = LIMIT.saturating_sub(begun.elapsed());
            match receiver.recv_timeout(left) {
                Ok(line) => {
                    let is_failure = line.starts_with("test ") && line.ends_with("FAILED");
                    let news = line.strip_prefix(MARK);
                    let news = news.filter(|news| !news.starts_with("skipped "));
                    if let Some(news) = news.or(is_failure.then_some(line.as_str())) {
                        // Past what a test prints, which is shown only when it fails.
                        let _ = writeln!(
                            std::io::stderr(),
                            "    {:>3} s  {news}",
                            begun.elapsed().as_secs()
                        );
                    }
                    lines.push(line);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    broken = Some(format!(
                        "the machine was not done within {} s and was killed",
                        LIMIT.as_secs()
                    ));
                    break;
                }
            }
        }
        if let Some(line) = lines.iter().find(|line| line.contains("Kernel panic")) {
            broken = Some(format!("the kernel gave up: {line}"));
        } else if broken.is_none() && !lines.iter().any(|line| line == "@@ done") {
            broken = Some("the machine went off before it was done".to_owned());
        }
        Self { lines, broken }
    }

    /// Exit code of a check and what it said; `None` when it did not end.
    pub(crate) fn result_of(&self, title: &str) -> Option<(i32, String)> {
        let begin = format!("{MARK}begin {title}");
        let from = self.lines.iter().position(|line| *line == begin)? + 1;
        let mut said = String::new();
        for line in &self.lines[from..] {
            if let Some(end) = line.strip_prefix("@@ end ") {
                let (code, of) = end.split_once(' ')?;
                return Some((code.parse().ok()?, said)).filter(|_| of == title);
            }
            said.push_str(line);
            said.push('\n');
        }
        None
    }

    /// What tests inside skipped, and why.
    pub(crate) fn skipped(&self) -> impl Iterator<Item = &str> {
        self.lines
            .iter()
            .filter_map(|line| line.strip_prefix("@@ skipped "))
    }

    /// The last it said.
    pub(crate) fn tail(&self) -> String {
        self.lines[self.lines.len().saturating_sub(TAIL)..].join("\n")
    }
}

/// One processor: emulating two costs more than it gains. Nothing inside is to be defended against other
/// programs of the machine, so what the kernel does for that is left out; and the newer the processor, the more
/// of it is slow to emulate. A kernel has died in QEMU 7.2 of wrong flags after a `cmpxchg16b`, so
/// the processor has none. A panic ends it at once.
fn start(image: &Image) -> Machine {
    let drive = |disk: PathBuf| {
        let mut drive = OsString::from("file=");
        drive.push(disk);
        drive.push(",format=raw,if=virtio,cache=unsafe");
        drive
    };
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
        .args([
            "-accel",
            "tcg",
            "-cpu",
            "Nehalem,-cx16",
            "-smp",
            "1",
            "-m",
            "2048",
        ])
        .args(["-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-display", "none", "-serial", "stdio"])
        .arg("-kernel")
        .arg(image.kernel())
        .arg("-initrd")
        .arg(image.initrd())
        .args([
            "-append",
            "console=ttyS0 panic=-1 loglevel=3 mitigations=off",
        ])
        .arg("-drive")
        .arg(drive(image.disk()))
        .arg("-drive")
        .arg(drive(image.quota_disk()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    Machine(child)
}
