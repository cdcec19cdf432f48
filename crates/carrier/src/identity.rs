//! Names that must be nobody else's: of a state directory towards services, and of a guest's directory there.

use glovebox_proto::{Code, Fault};
use glovebox_sandbox::{Name, SandboxSpec, random_hex};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// File of the state directory with its name towards services.
const OWNER_ID: &str = "owner-id";

/// Directory of a new guest on another machine: short, for a socket's path has 108 bytes.
pub fn new_run_dir() -> String {
    format!("/tmp/gb-{}", random_hex())
}

/// Directory in which a sandbox's commands start on another machine: the spec's, else one of its own in the home of
/// the login.
pub fn start_dir(spec: &SandboxSpec, name: &Name) -> PathBuf {
    let own = || PathBuf::from(name.directory_elsewhere());
    spec.cwd.clone().unwrap_or_else(own)
}

/// Name of a state directory towards services, by which its machines are told from those of others. Made once.
///
/// # Errors
/// `io` if it can be neither read nor made.
pub fn owner_id(state_dir: &Path) -> Result<String, Fault> {
    let path = state_dir.join(OWNER_ID);
    let failed = |what: &str, error: &std::io::Error| {
        Fault::failed(
            Code::Io,
            format!("cannot {what} {}: {error}", path.display()),
        )
    };
    loop {
        match fs::read_to_string(&path) {
            Ok(text) if is_id(&text) => return Ok(text),
            Ok(_) => {
                return Err(Fault::failed(
                    Code::Io,
                    format!("{} holds no name of a state directory", path.display()),
                )
                .remedy(
                    "remove it: machines that were made under its name are then not ours any more",
                ));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed("read", &error)),
        }
        let id = random_hex();
        let new = state_dir.join(format!("{OWNER_ID}.{id}"));
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)
            .and_then(|mut file| file.write_all(id.as_bytes()).and_then(|()| file.sync_all()));
        written.map_err(|error| failed("write", &error))?;
        // A link does not replace what somebody else made meanwhile.
        let linked = rustix::fs::link(&new, &path);
        let _ = fs::remove_file(&new);
        match linked {
            Ok(()) => {
                let _ = File::open(state_dir).and_then(|dir| dir.sync_all());
            }
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed("make", &errno.into())),
        }
    }
}

fn is_id(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_keeps_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let id = owner_id(dir.path()).unwrap();
        assert!(is_id(&id));
        assert_eq!(owner_id(dir.path()).unwrap(), id);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::write(dir.path().join(OWNER_ID), "../x").unwrap();
        assert!(owner_id(dir.path()).is_err());
        assert!(owner_id(&dir.path().join("missing")).is_err());
        assert_ne!(random_hex(), random_hex());
    }
}
