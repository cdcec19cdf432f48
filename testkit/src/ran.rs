//! Result of a call of the binary, and its comparison.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Output;

/// Finished call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Exit code; 128 plus the number for a signal.
    pub code: i32,
    /// Standard output, exact.
    pub stdout: Vec<u8>,
    /// Standard error, exact.
    pub stderr: Vec<u8>,
}

impl Ran {
    /// Creates the result of a program that has exited.
    pub fn new(output: Output) -> Self {
        let status = output.status;
        let code = status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Self {
            code,
            stdout: output.stdout,
            stderr: output.stderr,
        }
    }

    /// Returns standard output as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns standard error as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Returns standard error as a snapshot displays it, see [`filters`]. `root` is the test's
    /// directory.
    pub fn shown_err(&self, root: &Path) -> String {
        filters(&self.err(), root)
    }

    /// Returns standard error from the first line on that begins with `error:`, as a snapshot
    /// displays it, see [`filters`]. Warnings and notes that only some machines print precede that
    /// line.
    ///
    /// # Panics
    /// With all output, if no line begins so.
    pub fn failure(&self, root: &Path) -> String {
        let err = self.err();
        let lines: Vec<&str> = err
            .lines()
            .skip_while(|line| !line.starts_with("error:"))
            .collect();
        assert!(!lines.is_empty(), "no error is told\n{self}");
        filters(&lines.join("\n"), root)
    }

    /// Returns the lines of standard error that contain `word`, without indentation, as a snapshot
    /// displays them, see [`filters`]: for messages among lines that only some machines print.
    ///
    /// # Panics
    /// With all output, if there is no such line.
    pub fn said(&self, word: &str, root: &Path) -> String {
        let err = self.err();
        let lines: Vec<&str> = err
            .lines()
            .filter(|line| line.contains(word))
            .map(str::trim)
            .collect();
        assert!(!lines.is_empty(), "nothing is said of `{word}`\n{self}");
        filters(&lines.join("\n"), root)
    }

    /// Checks that the exit code is `code`, and returns the result.
    ///
    /// # Panics
    /// With all output, if it is another.
    #[expect(
        clippy::return_self_not_must_use,
        reason = "the check is often all that is wanted"
    )]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "unexpected exit code\n{self}");
        self
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "code: {}\n----- stdout\n{}----- stderr\n{}",
            self.code,
            self.out(),
            self.err()
        )
    }
}

/// Prefixes of generated names, of sandboxes, sessions, calls and temporary files.
const NAME_PREFIXES: [&str; 8] = ["agent", "box", "call", "cp", "mcp", "run", "s", "spawn"];

/// Replaces everything in `text` that differs from run to run: paths below `root`, process ids,
/// times, durations, random names.
pub fn filters(text: &str, root: &Path) -> String {
    let text = text.replace(&root.display().to_string(), "[ROOT]");
    let mut filtered = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric()) {
        let (before, from) = rest.split_at(start);
        filtered.push_str(before);
        let end = from
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '.')
            .unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        let before_dash = filtered.strip_suffix('-').map(|before| {
            before
                .rsplit(|c: char| !c.is_ascii_alphanumeric())
                .next()
                .unwrap_or_default()
        });
        let is_random = before_dash.is_some_and(|prefix| {
            is_random_part(word) || (NAME_PREFIXES.contains(&prefix) && is_random_word(word))
        });
        let unit = [" us", " ms", " s"].into_iter().find(|unit| {
            after
                .strip_prefix(unit)
                .is_some_and(|next| !next.starts_with(|c: char| c.is_ascii_alphanumeric()))
        });
        if word
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
            && unit.is_some()
        {
            filtered.push_str("[TIME]");
            rest = &after[unit.map_or(0, str::len)..];
            continue;
        }
        if filtered.ends_with("process ") && word.bytes().all(|byte| byte.is_ascii_digit()) {
            filtered.push_str("[PID]");
        } else if is_random {
            filtered.push_str("[RANDOM]");
        } else {
            filtered.push_str(word);
        }
        rest = after;
    }
    filtered.push_str(rest);
    filtered
}

/// Returns true for ten characters of the alphabet of generated names with at least one digit.
fn is_random_part(word: &str) -> bool {
    word.len() == 10
        && word
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
        && word.bytes().any(|byte| byte.is_ascii_digit())
}

/// Returns true for ten characters of that alphabet, which has no `i`, `l`, `o`, `u`; all may be
/// letters.
fn is_random_word(word: &str) -> bool {
    word.len() == 10
        && word.bytes().all(|byte| {
            byte.is_ascii_digit() || (byte.is_ascii_lowercase() && !b"ilou".contains(&byte))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_starts_at_its_error() {
        let root = Path::new("/tmp/glovebox-test-x");
        let ran = |stderr: &str| Ran {
            code: 6,
            stdout: Vec::new(),
            stderr: stderr.as_bytes().to_vec(),
        };
        let stderr =
            "warning: no limits\nerror: /tmp/glovebox-test-x/project is gone\n\nhint: look\n";
        assert_eq!(
            ran(stderr).failure(root),
            "error: [ROOT]/project is gone\n\nhint: look"
        );
        assert_eq!(ran(stderr).said("limits", root), "warning: no limits");
    }

    #[test]
    fn what_differs_from_run_to_run_is_replaced() {
        let root = Path::new("/tmp/glovebox-test-x");
        for (text, want) in [
            (
                "error: /tmp/glovebox-test-x/project is gone",
                "error: [ROOT]/project is gone",
            ),
            (
                "ready in 1.3 ms, tests 12 ms",
                "ready in [TIME], tests [TIME]",
            ),
            ("owner process 4711", "owner process [PID]"),
            (
                "sandbox run-0k3v9zq1xy is ready",
                "sandbox run-[RANDOM] is ready",
            ),
            (
                "`glovebox pull run-abcdefghjk`",
                "`glovebox pull run-[RANDOM]`",
            ),
            (
                "a well-understood rerun-abcdefghjk",
                "a well-understood rerun-abcdefghjk",
            ),
            ("exit 3, 5 sandboxes", "exit 3, 5 sandboxes"),
        ] {
            assert_eq!(filters(text, root), want);
        }
    }
}
