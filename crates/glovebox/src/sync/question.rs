//! Questions to a person at a terminal.

use crate::render::say;
use crate::streams::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{IsTerminal, Write};

/// Interval at which an interruption by the user is checked.
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// Maximum length of an answer in bytes; further bytes of the line are dropped.
const MAX_ANSWER_BYTES: usize = 256;

/// Returns true if a user can be asked: standard input and standard error are terminals.
pub(crate) fn is_possible() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks until the answer begins with one of `letters`. None if the user interrupts or leaves.
pub(crate) fn ask(question: &str, letters: &[char], signals: &Signals) -> Option<char> {
    ask_while(question, letters, || signals.check().is_ok())
}

fn ask_while(question: &str, letters: &[char], is_wanted: impl Fn() -> bool) -> Option<char> {
    loop {
        {
            let mut stderr = std::io::stderr().lock();
            let _ = write!(stderr, "glovebox: {question} ");
            let _ = stderr.flush();
        }
        let Some(answer) = line_while(&is_wanted) else {
            say("");
            return None;
        };
        let first = answer
            .trim()
            .chars()
            .next()
            .map(|letter| letter.to_ascii_lowercase());
        if let Some(letter) = first.filter(|letter| letters.contains(letter)) {
            return Some(letter);
        }
    }
}

/// Asks for a line of text. None if the user interrupts or leaves.
pub(crate) fn words(question: &str, signals: &Signals) -> Option<String> {
    {
        let mut stderr = std::io::stderr().lock();
        let _ = write!(stderr, "glovebox: {question} ");
        let _ = stderr.flush();
    }
    let answer = line(signals);
    if answer.is_none() {
        say("");
    }
    answer.map(|answer| answer.trim().to_owned())
}

/// Asks for yes or no before signals are handled, so that they end the program by default.
pub(crate) fn agree_before_start(question: &str) -> bool {
    choose_before_start(question, &['y', 'n']) == Some('y')
}

/// Asks until the answer begins with one of `letters`, before signals are handled. None if the user
/// leaves.
pub(crate) fn choose_before_start(question: &str, letters: &[char]) -> Option<char> {
    ask_while(question, letters, || true)
}

/// Reads one line from the terminal. None if the user interrupts or the input ends.
fn line(signals: &Signals) -> Option<String> {
    line_while(|| signals.check().is_ok())
}

/// Reads one line from the terminal, byte by byte, so that nothing after the line is consumed. None
/// if the input ends or `is_wanted` becomes false.
fn line_while(is_wanted: impl Fn() -> bool) -> Option<String> {
    let stdin = rustix::stdio::stdin();
    let mut answer = Vec::new();
    loop {
        if !is_wanted() {
            return None;
        }
        let mut fds = [PollFd::from_borrowed_fd(stdin, PollFlags::IN)];
        match poll(&mut fds, Some(&LOOK_AGAIN)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return None,
        }
        let mut byte = [0_u8];
        match rustix::io::read(stdin, &mut byte) {
            Ok(0) => return None,
            Ok(_) if byte[0] == b'\n' => {
                return Some(String::from_utf8_lossy(&answer).into_owned());
            }
            Ok(_) if answer.len() < MAX_ANSWER_BYTES => answer.push(byte[0]),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}
