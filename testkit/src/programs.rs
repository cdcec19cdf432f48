//! Programs that tests use: third-party ones, and those that cargo built for other tests.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::SystemTime;

/// Returns a program in the directory where `cargo xtask test` installs third-party clients and
/// servers. None if it is not installed.
pub fn installed(path: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let near = own.ancestors().nth(3)?.join("clients");
    let dir = std::env::var_os("GLOVEBOX_TEST_CLIENTS").map_or(near, PathBuf::from);
    Some(dir.join(path)).filter(|program| program.is_file())
}

/// Returns the test program that cargo built for the target `name` of `package` (its directory's
/// name): the one that `cargo xtask test` has just built, else the newest next to the test's own.
///
/// # Panics
/// It has not been built.
pub fn suite(package: &str, name: &str) -> PathBuf {
    if let Some(dir) = std::env::var_os("GLOVEBOX_TEST_SUITES") {
        return PathBuf::from(dir).join(package).join(name);
    }
    let own = std::env::current_exe().unwrap_or_default();
    let is_built = |path: &PathBuf| {
        let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        // Name, dash, hash; any other file with that prefix has an extension.
        let hash = file
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('-'));
        hash.is_some_and(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let found = own
        .parent()
        .and_then(|dir| dir.read_dir().ok())
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(is_built)
        .max_by_key(|path| {
            let built = path.metadata().and_then(|found| found.modified());
            built.unwrap_or(SystemTime::UNIX_EPOCH)
        });
    assert!(
        found.is_some(),
        "the tests `{name}` of {package} have not been built beside {}: `cargo test --workspace --no-run`",
        own.display()
    );
    found.unwrap_or_default()
}

/// Returns the shared libraries of `programs`, as the dynamic linker of this machine finds them;
/// none for a static program.
///
/// # Panics
/// ldd(1) is not installed.
#[expect(clippy::expect_used, reason = "a test cannot go on without")]
pub fn libraries<I, S>(programs: I) -> BTreeSet<PathBuf>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let listed = Command::new("ldd")
        .args(programs)
        .output()
        .expect("ldd runs");
    String::from_utf8_lossy(&listed.stdout)
        .split_whitespace()
        .filter(|word| word.starts_with('/') && !word.ends_with(':'))
        .map(PathBuf::from)
        .collect()
}
