//! What is behind an error: libraries wrap it in sentences about themselves.

use std::error::Error;

/// The text of the innermost error, as it is: it may hold what others have chosen.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
