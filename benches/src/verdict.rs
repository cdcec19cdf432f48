//! Whether one promise has been seen to hold.

use serde::Serialize;
use std::fmt;

/// A promise and what was found.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) what: String,
    /// Found divided by allowed: up to 1 is reached. `None` when it was not measured.
    pub(crate) ratio: Option<f64>,
    pub(crate) detail: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, ratio) = match self.ratio {
            Some(ratio) if ratio <= 1.0 => ("reached", format!("{ratio:.2}")),
            Some(ratio) => ("MISSED", format!("{ratio:.2}")),
            None => ("unknown", "-".to_owned()),
        };
        write!(f, "{word:<8} {ratio:>6}  {}", self.what)?;
        if self.detail.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.detail)
        }
    }
}
