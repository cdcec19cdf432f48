//! What parent and child say to each other.
//!
//! To the child: one line of JSON, a [`Header`], then the bytes it announces: the source, then its map. From the child:
//! one JSON [`Answer`].

use crate::{ExtractOptions, Extraction, Problem, WrappedBundle};
use serde::{Deserialize, Serialize};

/// What comes after it, and what to do with it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub work: Work,
    pub options: ExtractOptions,
    pub source_bytes: usize,
    pub map_bytes: Option<usize>,
}

/// What is wanted of a bundle.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Work {
    /// What it declares, read from its syntax.
    Extract,
    /// The bundle as a module that can be run.
    Wrap,
}

/// What the child says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Extraction(Extraction),
    Wrapped(Result<WrappedBundle, Vec<Problem>>),
    /// A wall could not be had. Nothing was read.
    NotConfined(String),
    /// The input ended early or is none.
    NoInput(String),
}
