//! What this process knows of its user: the only place that reads variables and the current directory. Everything else
//! gets them as a value.

use glovebox_settings::Surroundings;
use rustix::fs::Mode;
use std::path::Path;

/// Reads the environment of this process, once, before it has a second thread. `directory` is the `-C` flag; `is_here`
/// says that the directory is the project, as `-C` does.
pub(crate) fn read_surroundings(directory: Option<&Path>, is_here: bool) -> Surroundings {
    let is_here = is_here || directory.is_some();
    // A deleted current directory is an error only for commands that need one.
    let current = std::env::current_dir().unwrap_or_default();
    let directory = directory.map_or_else(|| current.clone(), |dir| current.join(dir));
    Surroundings::new(std::env::vars_os().collect(), directory, is_here).with_umask(take_umask())
}

/// Returns the umask of this process. A mask that denies the owner is replaced for this process by one that does
/// not, because the files it makes are files it reads again.
fn take_umask() -> u32 {
    let umask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(umask & (Mode::RWXG | Mode::RWXO));
    umask.as_raw_mode()
}
