//! The token that clients present to a listening command (`serve`, `mcp --http`). It comes from a
//! file or a variable, never from the command line, which other users can read.

use super::Cx;
use crate::exit::CommandError;
use std::fmt::Display;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Maximum number of bytes of a file that are read as a token.
const MAX_TOKEN_BYTES: u64 = 4096;

/// Returns the token in `file`, else in the environment variable `variable`. None if neither is
/// given.
///
/// # Errors
/// The file cannot be read, or `parse` refuses the text.
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
