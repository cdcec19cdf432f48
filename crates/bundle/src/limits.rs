//! Bounds of an extraction. Every one of them is named in the error it leads to.

/// Largest source.
pub const MAX_SOURCE_BYTES: usize = 8 * 1024 * 1024;
/// Largest source map, as it is given: JSON, or an address with the JSON in base64.
pub const MAX_MAP_BYTES: usize = 16 * 1024 * 1024;
/// Steps of the evaluator.
pub(crate) const FUEL: u32 = 100_000;
/// Nesting of values, calls and schemas.
pub(crate) const MAX_DEPTH: u32 = 200;
/// Stack that one level of the evaluator may take, with a wide margin also in debug builds.
pub(crate) const STACK_BYTES: usize = 256 * 1024 * 1024;
/// Deepest syntax, by the estimate of `nesting`: recursion of the parser and of walks over its tree.
pub(crate) const MAX_NESTING: u32 = 8_000;
/// Everything that was read, without code.
pub(crate) const MAX_OUTPUT_BYTES: usize = 1024 * 1024;
/// Code of one tool.
pub(crate) const MAX_SLICE_BYTES: usize = 1024 * 1024;
/// Longest text that the evaluator makes.
pub(crate) const MAX_TEXT_BYTES: usize = 1024 * 1024;
/// Longest name of an agent or a tool, in characters.
pub(crate) const MAX_NAME_CHARS: usize = 128;
/// Problems that are kept; what comes after them is counted.
pub(crate) const MAX_PROBLEMS: usize = 200;
/// Code of all tools together.
pub(crate) const MAX_CODE_BYTES: usize = 16 * 1024 * 1024;
/// Deepest nesting of schemas and options as JSON: what readers of JSON take without being asked.
pub(crate) const MAX_JSON_DEPTH: usize = 100;
/// First line of a request to the child that reads bundles.
pub(crate) const MAX_HEADER_BYTES: u64 = 4096;
/// Answer of that child: all code and all else, with room for escapes.
pub(crate) const MAX_ANSWER_BYTES: usize = 48 * 1024 * 1024;
/// Address space of that child. An 8 MB source of the densest kind takes about half of it.
pub(crate) const CHILD_MEMORY_BYTES: u64 = 3 * 1024 * 1024 * 1024;
/// Processor time of that child, in seconds.
pub(crate) const CHILD_CPU_S: u64 = 10;
/// Largest manifest.
pub const MAX_MANIFEST_BYTES: usize = 1024 * 1024;
/// Bundles of one manifest.
pub(crate) const MAX_MANIFEST_BUNDLES: usize = 1_000;
