//! Bundles: JavaScript or TypeScript files in which users of a platform declare agents and their tools. This crate reads
//! what a bundle declares from its syntax tree. Nothing of a bundle is ever run here.
//!
//! ```text
//! extract      bounds, parser, the whole                        text -> Extraction
//!   nesting    how deep the syntax is, before it is parsed
//!   exports    which value is the configuration
//!   evaluate   values of expressions, without running them
//!   config     agents;  tool  tools;  schema  zod and others -> JSON Schema
//!   unread     agents of other libraries, which are named and left out
//!   slice      the code that one tool would run;  erase  its types, when it is TypeScript
//! execution    the explicit other way: a bundle as a module that is run elsewhere, and asked
//! manifest     bundles that a compiler has made one for each agent
//! source_map   from places in the bundle to places in the files that it was made from
//! confined     the same in a process of its own that can do nothing else
//! problem      errors and warnings: code, place, source, reason, what to write instead
//! ```
//!
//! Everything in a bundle is untrusted. Size, nesting, steps, depth and output are bounded (`limits`); what comes out is
//! data, and names in it were checked once, here.

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
