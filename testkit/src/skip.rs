//! Skipping a test loudly: reported on standard error and in a log, and an error if the run demands
//! it.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

/// Ends the test here because something it needs is missing.
///
/// ```ignore
/// testkit::skip!("needs {program}");
/// ```
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {
        $crate::skip_because!(format!($($reason)+))
    };
}

/// Ends the test here for a [`SkipReason`], or for a text that says what is missing.
///
/// ```ignore
/// testkit::skip_because!(SkipReason::needs_root("to mount a small file system"));
/// ```
#[macro_export]
macro_rules! skip_because {
    ($reason:expr) => {{
        $crate::skip_loudly(module_path!(), $reason);
        return;
    }};
}

/// Reason for which a test is skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkipReason {
    /// The machine lacks something.
    Missing(String),
    /// Only root can set up the test. The run as root covers it.
    NeedsRoot(String),
}

impl SkipReason {
    /// Creates the reason. `what_for` names what only root can do: "to mount a file system".
    pub fn needs_root(what_for: &str) -> Self {
        Self::NeedsRoot(what_for.to_owned())
    }

    /// Returns true if `GLOVEBOX_TEST_NO_SKIP` makes this skip an error: `1` does for every skip,
    /// `but-for-root` for those that the run as root does not cover.
    fn is_error(&self, no_skip: Option<&str>) -> bool {
        match no_skip {
            Some("1") => true,
            Some("but-for-root") => !matches!(self, Self::NeedsRoot(_)),
            _ => false,
        }
    }
}

impl From<String> for SkipReason {
    fn from(what: String) -> Self {
        Self::Missing(what)
    }
}

impl From<&str> for SkipReason {
    fn from(what: &str) -> Self {
        Self::Missing(what.to_owned())
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => f.write_str(what),
            Self::NeedsRoot(what_for) => write!(f, "needs root {what_for}"),
        }
    }
}

/// Body of [`skip!`] and [`skip_because!`]: appends the reason to the file
/// `GLOVEBOX_TEST_SKIP_LOG`, if that is set.
///
/// # Panics
/// `GLOVEBOX_TEST_NO_SKIP` makes the skip an error, or root is asked to become root.
#[expect(
    clippy::print_stderr,
    reason = "a skip nobody sees is a test that never runs"
)]
pub fn skip_loudly(module: &str, reason: impl Into<SkipReason>) {
    let reason = reason.into();
    let test = std::thread::current().name().unwrap_or(module).to_owned();
    eprintln!("SKIP: {test}: {reason}");
    if let Some(log) = std::env::var_os("GLOVEBOX_TEST_SKIP_LOG")
        && let Ok(mut file) = OpenOptions::new().create(true).append(true).open(log)
    {
        let _ = writeln!(file, "{test}: {reason}");
    }
    let no_skip = std::env::var("GLOVEBOX_TEST_NO_SKIP").ok();
    assert!(
        !reason.is_error(no_skip.as_deref()),
        "skipping is an error here: {reason}"
    );
    assert!(
        !(is_root() && matches!(reason, SkipReason::NeedsRoot(_))),
        "this is root: {reason}"
    );
}

/// Returns true if a program is in `PATH`, `/usr/sbin` or `/sbin`.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir| {
            dir.join(name)
                .metadata()
                .is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
        })
}

/// Returns true if sandboxes can have their layers in memory here; reports a skip if they cannot.
///
/// # Panics
/// As [`skip_loudly`].
pub fn has_layers_in_memory() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|number| number.parse::<u32>().ok());
    let has_them = (numbers.next(), numbers.next()) >= (Some(6), Some(6));
    if !has_them {
        skip_loudly(
            module_path!(),
            "layers in memory need Linux 6.6, which gave tmpfs extended attributes for users",
        );
    }
    has_them
}

/// Returns true if this process is root.
pub fn is_root() -> bool {
    current_user() == 0
}

/// Returns the user id of this process.
pub(crate) fn current_user() -> u32 {
    // The owner of our own /proc entry is our effective user id (proc(5)).
    std::fs::metadata("/proc/self").map_or(u32::MAX, |own| own.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_needs_root_may_be_skipped_where_root_has_run() {
        let missing = SkipReason::from("git is not installed");
        let needs_root = SkipReason::needs_root("to mount a file system");
        for (no_skip, expected) in [
            (None, [false, false]),
            (Some("0"), [false, false]),
            (Some("1"), [true, true]),
            (Some("but-for-root"), [true, false]),
        ] {
            let is_error = [&missing, &needs_root].map(|reason| reason.is_error(no_skip));
            assert_eq!(is_error, expected, "{no_skip:?}");
        }
        assert_eq!(needs_root.to_string(), "needs root to mount a file system");
    }
}
