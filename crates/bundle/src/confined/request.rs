//! Messages between parent and child.
//!
//! To the child: one line of JSON, a [`Header`], then the bytes it announces: the source, then the
//! source map. From the child: one [`Answer`] as JSON.

use crate::{ExtractOptions, Extraction, Problem, WrappedBundle};
use serde::{Deserialize, Serialize};

/// Announcement of the bytes that follow, and the work to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub work: Work,
    pub options: ExtractOptions,
    pub source_bytes: usize,
    pub map_bytes: Option<usize>,
}

/// Work to do with a bundle.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Work {
    /// Read the declarations from the syntax.
    Extract,
    /// Convert the bundle to a module that can be run.
    Wrap,
}

/// Answer of the child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Extraction(Extraction),
    Wrapped(Result<WrappedBundle, Vec<Problem>>),
    /// The process could not be confined. Nothing was read.
    NotConfined(String),
    /// The input ended early or is malformed.
    NoInput(String),
}
