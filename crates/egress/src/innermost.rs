//! Root cause of an error. Libraries wrap it in messages about themselves.

use std::error::Error;

/// Returns the text of the innermost error, unescaped: it may contain text that a remote server has
/// chosen.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
