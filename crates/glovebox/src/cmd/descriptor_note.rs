//! A line about descriptors of the caller that a command names and does not get.

use super::Cx;
use std::ffi::OsString;

/// Directories of descriptors by number.
const PLACES: [&str; 2] = ["/dev/fd/", "/proc/self/fd/"];
/// First descriptor that is not a standard stream.
const FIRST: u32 = 3;

/// Warns of arguments that name an open descriptor of this process other than a standard stream, as a shell's
/// process substitution does. Called before this process opens any for itself.
pub(super) fn warn_of_descriptors(cx: &Cx, command: &[OsString]) {
    let is_open =
        |number: u32| std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
    for word in command {
        if let Some(number) = named_descriptor(word)
            && is_open(number)
        {
            cx.talk.warning(format_args!(
                "descriptor {number} does not reach the command, so it cannot open {}; give it a file, or a pipe as \
                 its standard input",
                word.display()
            ));
        }
    }
}

/// The number of the descriptor that an argument names.
fn named_descriptor(word: &OsString) -> Option<u32> {
    let word = word.to_str()?;
    let number = PLACES.iter().find_map(|place| word.strip_prefix(place))?;
    // Digits alone, which also makes the name safe to print.
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|_| is_number)?;
    (number >= FIRST).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_named_by_number_alone() {
        let found = |word: &str| named_descriptor(&word.into());
        assert_eq!(found("/dev/fd/63"), Some(63));
        assert_eq!(found("/proc/self/fd/3"), Some(3));
        for other in [
            "/dev/fd/2",
            "/dev/fd/",
            "/dev/fd/+4",
            "/dev/fd/4/x",
            "x/dev/fd/4",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
