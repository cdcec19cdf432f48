//! What a call of the binary did, and how to compare it.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Output;

/// A finished call.
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
    /// What a program that has ended has said.
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

    /// Standard output as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Gives itself back when the exit code is `code`.
    ///
    /// # Panics
    /// With everything that was written, when it is another.
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

/// `text` with everything that differs from run to run replaced: paths below `root`, process ids,
/// times, sizes of time, random names.
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
        let is_after_dash = filtered.ends_with('-');
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
        } else if is_after_dash && is_random_part(word) {
            filtered.push_str("[RANDOM]");
        } else {
            filtered.push_str(word);
        }
        rest = after;
    }
    filtered.push_str(rest);
    filtered
}

/// Ten characters of the alphabet of generated names, digits among them.
fn is_random_part(word: &str) -> bool {
    word.len() == 10
        && word
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
        && word.bytes().any(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("exit 3, 5 sandboxes", "exit 3, 5 sandboxes"),
        ] {
            assert_eq!(filters(text, root), want);
        }
    }
}
