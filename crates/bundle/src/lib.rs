//! Bundles: JavaScript or TypeScript files in which users of a platform declare agents and their
//! tools. This crate reads the declarations of a bundle from its syntax tree. It never runs code of
//! a bundle.
//!
//! ```text
//! extract      limits, parser, and the steps below             text -> Extraction
//!   nesting    depth of the syntax, estimated before parsing
//!   exports    search for the configuration
//!   evaluate   values of expressions, without running them
//!   config     agents;  tool  tools;  schema  zod and others -> JSON Schema
//!   unread     agents of other libraries, which are reported and left out
//!   slice      code of one tool;  erase  removal of its types, if it is TypeScript
//! execution    alternative on request: the bundle as a module that is run elsewhere
//! manifest     compiled bundles, one for each agent
//! source_map   from places in the bundle to places in its source files
//! confined     extraction in a child process that can do nothing else
//! problem      errors and warnings: code, place, source, reason, hint
//! ```
//!
//! Everything in a bundle is untrusted. Size, nesting, steps, depth and output are bounded
//! (`limits`). The result is data, and the names in it were checked once, here.

mod config;
mod confined;
mod data;
mod erase;
mod evaluate;
mod execution;
mod exports;
mod extract;
mod json;
mod limits;
mod manifest;
mod model;
mod nesting;
mod problem;
mod provenance;
mod report;
mod schema;
mod slice;
mod source;
mod source_map;
mod syntax;
mod text;
mod tool;
mod unread;
mod value;
mod weigh;

pub use confined::{
    ConfinedExtractor, EXTRACT_COMMAND, ExtractError, ExtractLimits, serve_extraction,
};
pub use execution::{WrappedBundle, not_declared, not_wrapped};
pub use extract::{ExtractOptions, Language, extract, extract_with_map, wrap};
pub use json::Json;
pub use limits::{MAX_MANIFEST_BYTES, MAX_MAP_BYTES, MAX_SOURCE_BYTES};
pub use manifest::{Manifest, ManifestBundle};
pub use model::{
    Agent, Bundle, BundleFormat, EXTRACTOR_VERSION, ExtractedBy, Extraction, Model, Slice,
    SourcePlace, Tool, ToolKind, ToolSignature,
};
pub use problem::{OriginalPlace, Problem, ProblemCode, RelatedPlace};
pub use source_map::source_map_name;
