//! The state directory, where sandboxes are kept between calls.
//!
//! It contains everything that sandboxes write, so it must belong to this user alone: a directory
//! (never a link) that this user owns and no other user can write. The registry also removes read
//! access for others.

use crate::Error;
use glovebox_settings::Surroundings;
use rustix::fs::{AtFlags, FileType, Mode, statat};
use std::path::{Path, PathBuf};

/// Returns the state directory: `asked`, or the default. The shared fallback in `/var/tmp` is
/// created and checked here; others are created when they are first used.
///
/// # Errors
/// The fallback cannot be created, or does not belong to this user alone.
pub fn state_dir(asked: Option<&Path>, host: &Surroundings) -> Result<PathBuf, Error> {
    if let Some(asked) = asked {
        return Ok(host.absolute(asked));
    }
    if let Some(dir) = host.xdg("XDG_STATE_HOME", ".local/state") {
        return Ok(dir);
    }
    let dir = PathBuf::from(format!(
        "/var/tmp/glovebox-{}",
        rustix::process::geteuid().as_raw()
    ));
    // TRUST: any user can create this name in the shared directory first, so it is checked.
    match rustix::fs::mkdir(&dir, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => {
            return Err(
                Error::io(format!("make {}", dir.display()), &error.into()).with_remedy(REMEDY)
            );
        }
    }
    check_owned(&dir)?;
    Ok(dir)
}

const REMEDY: &str = "set GLOVEBOX_STATE to a directory of your own";

fn check_owned(dir: &Path) -> Result<(), Error> {
    let stat = statat(rustix::fs::CWD, dir, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| {
        Error::io(format!("look at {}", dir.display()), &error.into()).with_remedy(REMEDY)
    })?;
    let problem = if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        "is not a directory"
    } else if stat.st_uid != rustix::process::geteuid().as_raw() {
        "belongs to another user"
    } else if stat.st_mode & 0o022 != 0 {
        "can be written by other users"
    } else {
        return Ok(());
    };
    Err(Error::refused(
        format!("the state directory {} {problem}", dir.display()),
        REMEDY,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn places_are_tried_in_order() {
        let (home, dir) = (Path::new("/home/u"), Path::new("/p"));
        let host = Surroundings::fixed(home, dir, &[]);
        assert_eq!(
            state_dir(None, &host).unwrap(),
            Path::new("/home/u/.local/state/glovebox")
        );
        let host = Surroundings::fixed(home, dir, &[("XDG_STATE_HOME", "/s")]);
        assert_eq!(state_dir(None, &host).unwrap(), Path::new("/s/glovebox"));
        let host = Surroundings::fixed(home, dir, &[("XDG_STATE_HOME", "relative")]);
        assert_eq!(
            state_dir(None, &host).unwrap(),
            Path::new("/home/u/.local/state/glovebox")
        );
        assert_eq!(
            state_dir(Some(Path::new("mine")), &host).unwrap(),
            Path::new("/p/mine")
        );
    }

    #[test]
    fn a_link_or_an_open_directory_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let (real, link) = (temp.path().join("real"), temp.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&real, &link).unwrap();
        check_owned(&real).unwrap();
        assert!(check_owned(&link).is_err());
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(check_owned(&real).is_err());
    }
}
