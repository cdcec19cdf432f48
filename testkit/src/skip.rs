//! Skipping a test loudly: said on standard error, written to a log, and an error where it counts.

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
    ($($reason:tt)+) => {{
        $crate::skip_loudly(module_path!(), &format!($($reason)+));
        return;
    }};
}

/// The body of [`skip!`]: records the reason under `GLOVEBOX_TEST_SKIP_LOG`, if set.
///
/// # Panics
/// With `GLOVEBOX_TEST_NO_SKIP=1`, where everything must be there.
#[expect(
    clippy::print_stderr,
    reason = "a skip nobody sees is a test that never runs"
)]
pub fn skip_loudly(module: &str, reason: &str) {
    let test = std::thread::current().name().unwrap_or(module).to_owned();
    eprintln!("SKIP: {test}: {reason}");
    if let Some(log) = std::env::var_os("GLOVEBOX_TEST_SKIP_LOG")
        && let Ok(mut file) = OpenOptions::new().create(true).append(true).open(log)
    {
        let _ = writeln!(file, "{test}: {reason}");
    }
    assert!(
        std::env::var("GLOVEBOX_TEST_NO_SKIP").as_deref() != Ok("1"),
        "skipping is an error here: {reason}"
    );
}

/// Whether a program is on the `PATH`.
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

/// Whether sandboxes can have their layers in memory here; says so where they cannot.
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

/// Whether this process is root.
pub fn is_root() -> bool {
    // The owner of our own /proc entry is our effective user id (proc(5)).
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
