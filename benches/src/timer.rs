//! A process that starts a program over and over where this one cannot, and says how long it took:
//! crun refuses hybrid control groups, so it runs in a mount namespace that does not show them.

use anyhow::{Context as _, Result, bail};
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// First argument of the process on the other side.
const WORD: &str = "__timer";

/// The command to time, when this process was started as a timer.
pub(crate) fn wanted() -> Option<Vec<OsString>> {
    let mut args = std::env::args_os().skip(1);
    (args.next()? == WORD).then(|| args.collect())
}

/// Runs `command` once per line of input and answers with nanoseconds, or with what went wrong.
pub(crate) fn serve(command: &[OsString]) -> Result<()> {
    let (program, args) = command
        .split_first()
        .context("there is no command to time")?;
    for line in std::io::stdin().lines() {
        line?;
        let began = Instant::now();
        let output = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()?;
        let taken = began.elapsed();
        let mut answer = std::io::stdout().lock();
        if output.status.success() {
            writeln!(answer, "{}", taken.as_nanos())?;
        } else {
            let said = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
            writeln!(answer, "{}: {}", output.status, said.trim())?;
        }
        answer.flush()?;
    }
    Ok(())
}

/// A running timer.
#[derive(Debug)]
pub(crate) struct Timer {
    process: Child,
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Timer {
    /// Starts a timer for `command` in a mount namespace of its own, after running `prelude` there
    /// in a shell.
    pub(crate) fn start(prelude: &str, command: &[OsString]) -> Result<Self> {
        let own = std::env::current_exe()?;
        let mut process = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c"])
            .arg(format!("{prelude}\nexec \"$0\" \"$@\""))
            .arg(own)
            .arg(WORD)
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run unshare")?;
        let ask = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().context("no output")?);
        Ok(Self {
            process,
            ask,
            answers,
        })
    }

    /// Runs the command once.
    pub(crate) fn run(&mut self) -> Result<Duration> {
        let ask = self.ask.as_mut().context("the timer has ended")?;
        ask.write_all(b"\n")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        match line.trim().parse() {
            Ok(nanos) => Ok(Duration::from_nanos(nanos)),
            Err(_) if line.is_empty() => bail!("the timer ended"),
            Err(_) => bail!("{}", line.trim()),
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.ask.take();
        let _ = self.process.wait();
    }
}
