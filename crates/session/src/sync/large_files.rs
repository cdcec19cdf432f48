//! Takes large files of git-lfs out of a sandbox: a commit contains only pointers.

use super::single_file;
use crate::Error;
use glovebox_proto::visible::line_of_text as escape_text;
use glovebox_proto::{Code, Exec, Exit, Fault};
use glovebox_sandbox::Sandbox;
use glovebox_workspace::branch::HostRepository;
use serde_bytes::ByteBuf;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Maximum number of bytes taken by one command.
const MAX_BYTES: u64 = 2 << 30;
/// Maximum size of the list of names, in bytes.
const MAX_LIST_BYTES: usize = 16 << 20;
const LIST_MS: u64 = 60_000;

/// Takes the large files that the sandbox has added and the host's repository lacks. `root` is the
/// working tree inside.
///
/// # Errors
/// [`Code::TooLarge`] for the first file above the limit; `DigestMismatch` for a file that does not
/// match its name; errors of writing. Files taken before stay, since they are named by their
/// content.
pub(super) fn take_large_files(
    sandbox: &Sandbox,
    root: &[u8],
    host: &HostRepository<'_>,
) -> Result<(), Error> {
    let exec = Exec {
        cwd: Some(ByteBuf::from(root)),
        timeout_ms: Some(LIST_MS),
        ..Exec::new(["find", ".git/lfs/objects", "-type", "f"])
    };
    let listed = sandbox.exec_with(exec, &[], MAX_LIST_BYTES)?;
    // Without git-lfs there is no such directory.
    if listed.report.exit != Exit::Code(0) {
        return Ok(());
    }
    let mut left = MAX_BYTES;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    for inside in text.lines().map(Path::new) {
        let Some(id) = inside.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let is_name = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let Some(mut new) = is_name
            .then(|| host.begin_large_file(id))
            .transpose()?
            .flatten()
        else {
            continue;
        };
        let from = Path::new(std::str::from_utf8(root).unwrap_or(".")).join(inside);
        let bytes = single_file::receive(sandbox, &from, &mut new.file, left)?;
        left -= bytes;
        if digest(&mut new.file)? != id {
            let message = format!(
                "the large file {} in the sandbox is not what its name says",
                escape_text(id)
            );
            return Err(Fault::failed(Code::DigestMismatch, message).into());
        }
        new.keep()?;
    }
    Ok(())
}

/// Returns the SHA-256 of a file in hexadecimal digits.
fn digest(file: &mut std::fs::File) -> Result<String, Error> {
    let failed = |error: std::io::Error| Error::io("read a large file", &error);
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        let count = file.read(&mut buffer).map_err(failed)?;
        if count == 0 {
            break;
        }
        hasher.update(&buffer[..count]);
    }
    Ok(hasher
        .finalize()
        .iter()
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }))
}
