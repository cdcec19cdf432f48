//! Converts an `Exec` request to the arguments of execve(2).

use crate::files;
use glovebox_jail::process::{NulError, SpawnError, Strings};
use glovebox_proto::{Code, Exec, Fault};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;

/// Search path if the environment has no `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Number of variables up to which a linear search is faster than hashing.
const FEW: usize = 48;

/// A command ready to be started.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) argv: Strings,
    pub(crate) env: Strings,
    pub(crate) candidates: Strings,
    pub(crate) cwd: CString,
}

/// Name and value of an environment variable.
type Var<'a> = (&'a [u8], &'a [u8]);

/// Builds argument vector, environment, paths to try and working directory of a validated request.
///
/// # Errors
/// `InvalidArgument` if a string contains a NUL byte.
pub(crate) fn prepare(
    exec: &Exec,
    base_env: &[(Vec<u8>, Vec<u8>)],
    default_cwd: &[u8],
) -> Result<Command, Fault> {
    let nul = |_: NulError| Fault::failed(Code::InvalidArgument, "the command contains a NUL byte");
    let mut argv = Strings::new();
    for arg in &exec.argv {
        argv.push(&[arg]).map_err(nul)?;
    }
    let base: &[(Vec<u8>, Vec<u8>)] = if exec.clear_env { &[] } else { base_env };
    let base = base
        .iter()
        .map(|(name, value)| (name.as_slice(), value.as_slice()));
    let own = exec
        .env
        .iter()
        .map(|var| (var.name.as_slice(), var.value.as_slice()));
    let vars = merge(base.chain(own), base_env.len() + exec.env.len());
    let mut env = Strings::new();
    let mut path = None;
    for (name, value) in vars {
        env.push(&[name, b"=", value]).map_err(nul)?;
        if name == b"PATH" {
            path = Some(value);
        }
    }
    let name = exec.argv.first().map_or(&[][..], |name| name.as_slice());
    let mut candidates = Strings::new();
    if exec.program.is_some() {
        // An open program is executed by its descriptor: there is no path to try.
    } else if name.contains(&b'/') {
        candidates.push(&[name]).map_err(nul)?;
    } else {
        for dir in path.unwrap_or(DEFAULT_PATH).split(|&byte| byte == b':') {
            // An empty entry means the working directory (environ(7)).
            let dir = if dir.is_empty() { b"." } else { dir };
            candidates.push(&[dir, b"/", name]).map_err(nul)?;
        }
    }
    let cwd = match &exec.cwd {
        Some(cwd) => files::absolute(default_cwd, cwd),
        None => default_cwd.to_vec(),
    };
    let cwd = CString::new(cwd).map_err(|_| {
        Fault::failed(
            Code::InvalidArgument,
            "the working directory contains a NUL byte",
        )
    })?;
    Ok(Command {
        argv,
        env,
        candidates,
        cwd,
    })
}

/// Merges variables: a later value replaces an earlier one and keeps its position.
fn merge<'a>(vars: impl Iterator<Item = Var<'a>>, count: usize) -> Vec<Var<'a>> {
    let mut merged: Vec<Var<'a>> = Vec::with_capacity(count);
    if count <= FEW {
        for (name, value) in vars {
            match merged.iter_mut().find(|(seen, _)| *seen == name) {
                Some(slot) => slot.1 = value,
                None => merged.push((name, value)),
            }
        }
        return merged;
    }
    let mut places: HashMap<&[u8], usize> = HashMap::with_capacity(count);
    for (name, value) in vars {
        let place = *places.entry(name).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(slot) => slot.1 = value,
            None => merged.push((name, value)),
        }
    }
    merged
}

/// Returns the fault for a command that did not start.
pub(crate) fn spawn_fault(error: SpawnError, exec: &Exec, cwd: &CString) -> Fault {
    let name = exec
        .argv
        .first()
        .map_or_else(String::new, |name| files::shown(name));
    match error {
        SpawnError::NotFound => {
            let has_slash = exec.argv.first().is_some_and(|name| name.contains(&b'/'));
            let place = if has_slash { "" } else { " in PATH" };
            Fault::failed(
                Code::CommandNotFound,
                format!("{name} was not found{place}"),
            )
        }
        SpawnError::NotExecutable(errno) => {
            let why = match errno {
                Errno::ACCESS => "permission denied",
                Errno::NOEXEC => "it is neither a program for this machine nor a script",
                Errno::TXTBSY => "it is open for writing",
                Errno::LOOP => "too many levels of symbolic links or interpreters",
                _ => "the system refuses",
            };
            Fault::failed(
                Code::CommandNotExecutable,
                format!("{name} cannot be executed: {why} ({errno})"),
            )
        }
        SpawnError::Cwd(errno) => {
            let cwd = files::shown(cwd.as_bytes());
            let message = format!("the working directory {cwd} cannot be entered: {errno}");
            Fault::failed(Code::CwdNotFound, message)
        }
        SpawnError::TooLarge => Fault::failed(
            Code::TooLarge,
            format!("arguments and environment of {name} are larger than Linux accepts"),
        )
        .remedy("pass large inputs through a file or standard input"),
        SpawnError::NoProcesses => Fault::failed(
            Code::Busy,
            format!("{name} was not started: the limit on processes or memory is reached"),
        )
        .remedy("try again when something has ended, or raise the limit")
        .retryable(),
        SpawnError::Confine(errno) => Fault::failed(
            Code::Unavailable,
            format!("{name} was not started, for it could not be confined: {errno}"),
        ),
        SpawnError::Interrupted => Fault::failed(
            Code::JobEnded,
            format!("{name} was killed as soon as it had started, by itself or from beside it"),
        ),
        SpawnError::Other(errno) => crate::fault::system(errno, &format!("{name} was not started")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_proto::EnvVar;
    use serde_bytes::ByteBuf;

    fn list(strings: &Strings) -> Vec<String> {
        strings
            .iter()
            .map(|text| text.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn environment_merges_and_decides_the_candidates() {
        let base = vec![
            (b"PATH".to_vec(), b"/a:/b".to_vec()),
            (b"HOME".to_vec(), b"/h".to_vec()),
        ];
        let var = |name: &str, value: &str| EnvVar {
            name: ByteBuf::from(name),
            value: ByteBuf::from(value),
        };
        let mut exec = Exec::new(["ls"]);
        exec.env = vec![var("X", "1"), var("PATH", "/c::/d"), var("X", "2")];
        let command = prepare(&exec, &base, b"/w").unwrap();
        assert_eq!(list(&command.env), ["PATH=/c::/d", "HOME=/h", "X=2"]);
        assert_eq!(list(&command.candidates), ["/c/ls", "./ls", "/d/ls"]);
        assert_eq!(command.cwd.to_bytes(), b"/w");

        exec.clear_env = true;
        exec.env.clear();
        exec.cwd = Some(ByteBuf::from("sub"));
        let command = prepare(&exec, &base, b"/w").unwrap();
        assert!(command.env.is_empty());
        assert_eq!(command.candidates.len(), 6);
        assert_eq!(command.cwd.to_bytes(), b"/w/sub");
    }

    #[test]
    fn many_variables_merge_alike() {
        let names: Vec<_> = (0..200).map(|n| format!("V{}", n % 70)).collect();
        let values: Vec<_> = (0..200).map(|n| n.to_string()).collect();
        let vars = || {
            names
                .iter()
                .zip(&values)
                .map(|(n, v)| (n.as_bytes(), v.as_bytes()))
        };
        let merged = merge(vars(), 200);
        assert_eq!(merged, merge(vars(), 0));
        assert_eq!(merged.len(), 70);
        assert_eq!(merged[0], (&b"V0"[..], &b"140"[..]));
    }
}
