//! The token that programs show to what listens here (`serve`, `mcp --http`): from where it is not seen by others, never from the
//! command line.

use super::Cx;
use crate::exit::CommandError;
use std::fmt::Display;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Most bytes of a file that are read as a token.
const MAX_TOKEN_BYTES: u64 = 4096;

/// The token in `file`, else in the environment variable `variable`; `None` when neither is given.
///
/// # Errors
/// A file that cannot be read, or what `parse` has against the text.
pub(super) fn given_token<T, E: Display>(
    cx: &Cx,
    file: Option<&Path>,
    variable: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, CommandError> {
    let (text, origin) = match file {
        Some(path) => {
            let path = cx.host.absolute(path);
            let mut text = String::new();
            let read = File::open(&path)
                .and_then(|file| file.take(MAX_TOKEN_BYTES).read_to_string(&mut text));
            read.map_err(|error| CommandError::io(format!("read {}", path.display()), &error))?;
            (text, path.display().to_string())
        }
        None => match cx.host.var(variable) {
            Some(text) => (text.to_string_lossy().into_owned(), format!("${variable}")),
            None => return Ok(None),
        },
    };
    parse(&text).map(Some).map_err(|error| {
        CommandError::usage(
            format!("{origin}: {error}"),
            "make one with `openssl rand -hex 32`",
        )
    })
}
