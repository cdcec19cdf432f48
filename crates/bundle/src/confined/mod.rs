//! Extraction in a child process that can only read its input, compute, and write its answer.
//!
//! ```text
//! request   messages between parent and child
//! child     confines itself, reads, extracts, answers
//! parent    starts the child, feeds it, terminates it at the deadline, reports its exit
//! ```
//!
//! Untrusted text flows through thousands of lines of parser code. A hostile bundle may overflow
//! the stack, exhaust the memory, never end, or do worse. All of this happens in the child, and
//! reaches the parent as an [`ExtractError`].

mod child;
mod parent;
mod request;

pub use child::{EXTRACT_COMMAND, serve_extraction};
pub use parent::{ConfinedExtractor, ExtractError, ExtractLimits};
