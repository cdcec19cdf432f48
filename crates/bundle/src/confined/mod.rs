//! Extraction in a process of its own, which can do nothing but read its input, compute, and write its answer.
//!
//! ```text
//! request   what the child is told, and what it answers
//! child     confines itself, reads, extracts, answers
//! parent    starts the child, feeds it, ends it at the deadline, says how it ended
//! ```
//!
//! The parser is thousands of lines that untrusted text flows through. Whatever it does with a hostile bundle, overflow
//! the stack, take all memory, never end, or worse, happens in the child and reaches the parent as an [`ExtractError`].

mod child;
mod parent;
mod request;

pub use child::{EXTRACT_COMMAND, serve_extraction};
pub use parent::{ConfinedExtractor, ExtractError, ExtractLimits};
