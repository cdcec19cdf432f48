//! Questions to a person at a terminal.

use crate::render::say;
use crate::streams::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{IsTerminal, Write};

/// How often the user's wish to stop is looked at.
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// More than any answer.
const MAX_ANSWER_BYTES: usize = 256;

/// Whether there is somebody to ask.
pub(crate) fn is_possible() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks until the answer begins with one of `letters`; `None` when the user interrupts or leaves.
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

/// Asks for a line of words; `None` when the user interrupts or leaves.
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

/// Asks for yes or no before signals are taken over, so that they end the program as ever.
pub(crate) fn agree_before_start(question: &str) -> bool {
    choose_before_start(question, &['y', 'n']) == Some('y')
}

/// Asks until the answer begins with one of `letters`, before signals are taken over; `None` when the user leaves.
pub(crate) fn choose_before_start(question: &str, letters: &[char]) -> Option<char> {
    ask_while(question, letters, || true)
}

/// One line from the terminal, unless the user interrupts.
fn line(signals: &Signals) -> Option<String> {
    line_while(|| signals.check().is_ok())
}

/// One line from the terminal. Read by byte, so that nothing of what follows is taken.
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
