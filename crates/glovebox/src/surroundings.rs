//! The environment of this process: the only place that reads environment variables and the current
//! directory. All other code gets them as a value.

use glovebox_settings::Surroundings;
use rustix::fs::Mode;
use std::path::Path;

/// Reads the environment of this process. Must be called once, before there is a second thread.
/// `directory` is the `-C` flag; `is_here` means that the directory is the project, as `-C` does.
pub(crate) fn read_surroundings(directory: Option<&Path>, is_here: bool) -> Surroundings {
    let is_here = is_here || directory.is_some();
    // A deleted current directory is an error only for commands that need one.
    let current = std::env::current_dir().unwrap_or_default();
    let directory = directory.map_or_else(|| current.clone(), |dir| current.join(dir));
    Surroundings::new(std::env::vars_os().collect(), directory, is_here).with_umask(take_umask())
}

/// Returns the umask of this process. If it denies access to the owner, it is replaced for this
/// process by one that does not, because this process must be able to read the files it creates.
fn take_umask() -> u32 {
    // umask(2) returns the mask only while it sets another.
    let umask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(umask & (Mode::RWXG | Mode::RWXO));
    umask.as_raw_mode()
}
