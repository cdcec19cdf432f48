//! Unique names: of a state directory at services, and of a guest's directory on another machine.

use glovebox_proto::{Code, Fault};
use glovebox_sandbox::{Name, SandboxSpec, random_hex};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// File in the state directory that holds its name.
const OWNER_ID: &str = "owner-id";

/// Returns the directory of a new guest on another machine. It is short, because the path of a
/// socket has 108 bytes at most (unix(7)).
pub fn new_run_dir() -> String {
    format!("/tmp/gb-{}", random_hex())
}

/// Returns the directory in which a sandbox's commands start on another machine: the one of the
/// spec, or else a directory of the sandbox in the home of the login.
pub fn start_dir(spec: &SandboxSpec, name: &Name) -> PathBuf {
    let own = || PathBuf::from(name.directory_elsewhere());
    spec.cwd.clone().unwrap_or_else(own)
}

/// Returns the name of a state directory at services, which distinguishes its machines from those
/// of others. Creates it on the first call.
///
/// # Errors
/// `io` if it cannot be read or created.
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
        // link(2) does not replace the file of a process that was faster.
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
