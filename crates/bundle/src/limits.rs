//! Limits of an extraction. Each is named in the error that it causes.

/// Maximum size of a source.
pub const MAX_SOURCE_BYTES: usize = 8 * 1024 * 1024;
/// Maximum size of a source map as given: JSON, or a `data:` address with the JSON in base64.
pub const MAX_MAP_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of steps of the evaluator.
pub(crate) const FUEL: u32 = 100_000;
/// Maximum nesting of values, calls and schemas.
pub(crate) const MAX_DEPTH: u32 = 200;
/// Stack of the thread that extracts a bundle, with a wide margin above the limits of nesting, also
/// in debug builds.
pub(crate) const STACK_BYTES: usize = 256 * 1024 * 1024;
/// Maximum depth of the syntax, as `nesting` estimates it: recursion of the parser and of walks
/// over its tree.
pub(crate) const MAX_NESTING: u32 = 8_000;
/// Maximum size of all extracted content except code.
pub(crate) const MAX_OUTPUT_BYTES: usize = 1024 * 1024;
/// Maximum size of the code of one tool.
pub(crate) const MAX_SLICE_BYTES: usize = 1024 * 1024;
/// Maximum size of an evaluated text.
pub(crate) const MAX_TEXT_BYTES: usize = 1024 * 1024;
/// Maximum length of the name of an agent or a tool, in characters.
pub(crate) const MAX_NAME_CHARS: usize = 128;
/// Maximum number of problems; later ones are dropped.
pub(crate) const MAX_PROBLEMS: usize = 200;
/// Maximum size of the code of all tools together.
pub(crate) const MAX_CODE_BYTES: usize = 16 * 1024 * 1024;
/// Maximum nesting of schemas and options as JSON; common JSON parsers accept it by default.
pub(crate) const MAX_JSON_DEPTH: usize = 100;
/// Maximum size of the first line of a request to the child that reads bundles.
pub(crate) const MAX_HEADER_BYTES: u64 = 4096;
/// Maximum size of the child's answer: all code and content, with room for escapes.
pub(crate) const MAX_ANSWER_BYTES: usize = 48 * 1024 * 1024;
/// Address space of the child. A source of 8 MB of the densest kind takes about half of it.
pub(crate) const CHILD_MEMORY_BYTES: u64 = 3 * 1024 * 1024 * 1024;
/// Processor time of the child, in seconds.
pub(crate) const CHILD_CPU_S: u64 = 10;
/// Maximum size of a manifest.
pub const MAX_MANIFEST_BYTES: usize = 1024 * 1024;
/// Maximum number of bundles in a manifest.
pub(crate) const MAX_MANIFEST_BUNDLES: usize = 1_000;
