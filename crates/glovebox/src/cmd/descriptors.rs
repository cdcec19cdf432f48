//! Descriptors of the caller that a command gets: those that its arguments name, as a shell's
//! process substitution does, and those of `--fd`.

use super::Cx;
use crate::exit::CommandError;
use crate::streams::{CallerDescriptors, inherited};
use glovebox_proto::{Exit, ExitReport};
use glovebox_sandbox::Sandbox;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

/// First descriptor that is not a standard stream.
const FIRST_DESCRIPTOR: i32 = 3;
/// Directories whose entries are descriptors by number.
const PLACES: [&[u8]; 2] = [b"/dev/fd/", b"/proc/self/fd/"];
/// Message of programs for EBADF (strerror(3)), in lower case.
const BAD_DESCRIPTOR: &str = "bad file descriptor";

/// Opens the descriptors that a command gets. A number in its arguments that is not an open
/// descriptor is ignored.
///
/// # Errors
/// A usage error for a descriptor that no pipe can replace, or for one of `--fd` that is not open.
pub(super) fn open_descriptors(
    asked: &[i32],
    command: &[OsString],
) -> Result<CallerDescriptors, CommandError> {
    let mut numbers = asked.to_vec();
    let named = command
        .iter()
        .flat_map(|word| named_descriptors(word.as_bytes()));
    numbers.extend(named.filter(|number| inherited().contains(number)));
    numbers.sort_unstable();
    numbers.dedup();
    CallerDescriptors::open(&numbers)
}

/// Returns the descriptors that a failed command complained about and that are open here but were
/// not given to it.
pub(super) fn find_missing(sandbox: &Sandbox, report: &ExitReport, given: &[i32]) -> Vec<i32> {
    let is_missing = |number: &i32| !given.contains(number);
    let mut missing: Vec<i32> = inherited().iter().copied().filter(is_missing).collect();
    if missing.is_empty() || report.exit == Exit::Code(0) {
        return Vec::new();
    }
    let output = sandbox.output_tail(report).unwrap_or_default();
    let output = String::from_utf8_lossy(&output).to_ascii_lowercase();
    let complaints: Vec<&str> = output
        .lines()
        .filter(|line| line.contains(BAD_DESCRIPTOR))
        .collect();
    let is_named = |number: i32| {
        let mut words = complaints
            .iter()
            .flat_map(|line| line.split(|char: char| !char.is_ascii_digit()));
        words.any(|digits| digits.parse() == Ok(number))
    };
    missing.retain(|number| is_named(*number));
    missing
}

/// Reports the descriptors that were open and not given to the command.
pub(super) fn tell_missing(cx: &Cx, missing: &[i32]) {
    for number in missing {
        cx.talk.note(format_args!(
            "descriptor {number} is open here and does not reach the command; `--fd {number}` gives it"
        ));
    }
}

/// Returns the numbers of descriptors that a text names by their path.
fn named_descriptors(text: &[u8]) -> Vec<i32> {
    let mut found = Vec::new();
    for place in PLACES {
        let places = text.windows(place.len()).enumerate();
        for (start, _) in places.filter(|(_, window)| *window == place) {
            let rest = &text[start + place.len()..];
            let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            // `/dev/fd/4/x` and `/dev/fd/4x` are other files.
            let is_whole = !rest
                .get(length)
                .is_some_and(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(byte));
            let number: Option<i32> = std::str::from_utf8(&rest[..length])
                .ok()
                .and_then(|digits| digits.parse().ok());
            found.extend(number.filter(|number| is_whole && *number >= FIRST_DESCRIPTOR));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_named_by_their_paths() {
        let found = |word: &str| named_descriptors(word.as_bytes());
        assert_eq!(found("/dev/fd/63"), [63]);
        assert_eq!(found("/proc/self/fd/3"), [3]);
        assert_eq!(found("--rcfile=/dev/fd/63"), [63]);
        assert_eq!(found("-f/dev/fd/63"), [63]);
        assert_eq!(found("cat /dev/fd/4 </dev/fd/5; x"), [4, 5]);
        for other in [
            "/dev/fd/2",
            "/dev/fd/",
            "/dev/fd/+4",
            "/dev/fd/4/x",
            "/dev/fd/4x",
            "/dev/fd/99999999999",
            "63",
        ] {
            assert_eq!(found(other), [0; 0], "{other}");
        }
    }
}
