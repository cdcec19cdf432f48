//! Copies one file between this machine and a sandbox: streamed to a temporary name beside its
//! destination and renamed over it, so that no reader sees a part of it.

use crate::Error;
use glovebox_proto::limits::MAX_DATA_BYTES;
use glovebox_proto::sparse::data_runs;
use glovebox_proto::{Channel, Code, Fault, Reply, Request, WriteMode};
use glovebox_sandbox::{Incoming, Name, Sandbox};
use glovebox_settings::units::human_bytes;
use glovebox_workspace::Quota;
use rustix::fs::{Mode, OFlags};
use serde_bytes::ByteBuf;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Permission bits that a copy keeps.
pub const PERMISSIONS: u32 = 0o777;

/// Converts a path for the link; an empty one is the start directory of commands.
pub fn path_bytes(path: &Path) -> ByteBuf {
    match path.as_os_str().as_bytes() {
        b"" => ByteBuf::from(b".".to_vec()),
        path => ByteBuf::from(path),
    }
}

/// Returns an unused name beside `path`.
fn beside(path: &Path) -> PathBuf {
    path.with_file_name(Name::random("glovebox-cp").as_str())
}

/// Sends the file `from` of this machine to `to` in the sandbox, replacing an existing file.
/// Returns its size in bytes.
///
/// # Errors
/// The file cannot be read, or the sandbox refuses it; the temporary file is removed.
pub fn send(sandbox: &Sandbox, from: &Path, to: &Path) -> Result<u64, Error> {
    let failed = |error: std::io::Error| Error::io(format!("copy {}", from.display()), &error);
    let mut file = File::open(from).map_err(failed)?;
    let permissions = file.metadata().map_err(failed)?.permissions().mode() & PERMISSIONS;
    let place = beside(to);
    let sent =
        send_content(sandbox, &mut file, from, permissions, &place, false).and_then(|sent| {
            sandbox.call(Request::Rename {
                from: path_bytes(&place),
                to: path_bytes(to),
                replace: true,
            })?;
            Ok(sent)
        });
    if sent.is_err() {
        // If it was never created, this fails and does no harm.
        let _ = sandbox.call(Request::Remove {
            path: path_bytes(&place),
            recursive: false,
        });
    }
    sent
}

/// Sends content to the new file `place` in the sandbox. `makes_parents` creates missing
/// directories; `from` is the path for error messages. Returns the size in bytes.
pub(super) fn send_content(
    sandbox: &Sandbox,
    content: &mut dyn Read,
    from: &Path,
    permissions: u32,
    place: &Path,
    makes_parents: bool,
) -> Result<u64, Error> {
    let mut stream = sandbox.open(Request::FileWrite {
        path: path_bytes(place),
        mode: WriteMode::CreateNew,
        permissions,
        make_parents: makes_parents,
    })?;
    let mut buffer = vec![0_u8; MAX_DATA_BYTES as usize];
    let mut sent = 0_u64;
    loop {
        let read = content
            .read(&mut buffer)
            .map_err(|error| Error::io(format!("copy {}", from.display()), &error))?;
        // If sending fails, the reply states the reason.
        if read == 0 || stream.send(&buffer[..read]).is_err() {
            break;
        }
        sent += read as u64;
    }
    let _ = stream.finish_input();
    loop {
        match stream.recv() {
            Incoming::Data { .. } => {}
            Incoming::Reply(Ok(Reply::Written { .. })) => return Ok(sent),
            Incoming::Reply(Ok(_)) => {
                let fault = Fault::lost(
                    Code::Protocol,
                    "the guest answered something else than was asked",
                );
                return Err(fault.into());
            }
            Incoming::Reply(Err(fault)) => return Err(fault.into()),
        }
    }
}

/// Fetches the file `from` of the sandbox to `to` on this machine, with these permission bits. A
/// link at `to` is replaced, not followed. Returns the size in bytes.
///
/// # Errors
/// The sandbox does not return the file, it exceeds the limit of a transfer, or it cannot be
/// written; the temporary file is removed.
pub fn fetch(sandbox: &Sandbox, from: &Path, permissions: u32, to: &Path) -> Result<u64, Error> {
    let place = beside(to);
    let fetched = fetch_beside(sandbox, from, permissions, &place, to);
    if fetched.is_err() {
        // If it was never created, this fails and does no harm.
        let _ = fs::remove_file(&place);
    }
    fetched
}

fn fetch_beside(
    sandbox: &Sandbox,
    from: &Path,
    permissions: u32,
    place: &Path,
    to: &Path,
) -> Result<u64, Error> {
    let failed = |error: std::io::Error| Error::io(format!("write {}", to.display()), &error);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::open(place, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| failed(errno.into()))?;
    let mut file = File::from(fd);
    let received = receive(sandbox, from, &mut file, Quota::default().max_bytes)?;
    // TRUST: set-id and sticky bits of the sandbox's file are dropped.
    let mode = fs::Permissions::from_mode(permissions & PERMISSIONS);
    file.set_permissions(mode).map_err(failed)?;
    fs::rename(place, to).map_err(failed)?;
    Ok(received)
}

/// Writes the content of a file of the sandbox to `file` and returns its size in bytes. Fails with
/// `TooLarge` above `max_bytes`.
// TRUST: a file of the sandbox may be endless.
pub(super) fn receive(
    sandbox: &Sandbox,
    from: &Path,
    file: &mut File,
    max_bytes: u64,
) -> Result<u64, Error> {
    let mut stream = sandbox.open(Request::FileRead {
        path: path_bytes(from),
        offset: 0,
        max_bytes: Some(max_bytes + 1),
    })?;
    let mut received = 0_u64;
    loop {
        match stream.recv() {
            Incoming::Data {
                channel: Channel::Content,
                bytes,
                ..
            } => {
                received += bytes.len() as u64;
                if received > max_bytes {
                    let _ = stream.cancel();
                    let fault = Fault::failed(
                        Code::TooLarge,
                        format!(
                            "{} has more than {}",
                            from.display(),
                            human_bytes(max_bytes)
                        ),
                    );
                    return Err(fault.into());
                }
                let at = received - bytes.len() as u64;
                let mut runs = data_runs(at, &bytes);
                if let Err(error) = runs.try_for_each(|(at, run)| file.write_all_at(run, at)) {
                    let _ = stream.cancel();
                    return Err(Error::io("write the copy", &error));
                }
            }
            Incoming::Data { .. } => {}
            Incoming::Reply(Ok(_)) => {
                // A hole at the end did not extend the file.
                let set = file.set_len(received);
                set.map_err(|error| Error::io("write the copy", &error))?;
                return Ok(received);
            }
            Incoming::Reply(Err(fault)) => return Err(fault.into()),
        }
    }
}
