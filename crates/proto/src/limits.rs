//! Bounds on everything that crosses the wire. Both sides enforce all of them.

/// Largest payload of a `Request`, `Reply` or `Hello` frame, in bytes. Linux refuses argument lists
/// above a few MiB (`execve(2)`, "Limits on size of arguments and environment"), so a larger bound
/// would have no use.
pub const MAX_CONTROL_BYTES: u32 = 4 << 20;
/// Largest payload of one `Data` frame, in bytes.
pub const MAX_DATA_BYTES: u32 = 128 << 10;
/// Most bytes in flight on one channel of one request. The sender then waits for credit.
pub const WINDOW_BYTES: u32 = 512 << 10;
/// Most open requests per connection.
pub const MAX_OPEN_REQUESTS: usize = 4096;
/// Most jobs that one guest remembers, finished ones included. The oldest finished jobs are
/// forgotten first.
pub const MAX_JOBS: usize = 4096;
/// Longest path in a request, in bytes (`PATH_MAX`).
pub const MAX_PATH_BYTES: usize = 4096;
/// Longest single argument or `NAME=value` string that Linux accepts, in bytes without the
/// terminating NUL (`MAX_ARG_STRLEN`, 32 pages).
pub const MAX_ARG_BYTES: usize = (128 << 10) - 1;
/// Most arguments, or environment entries, in one request.
pub const MAX_ARGS: usize = 65_536;
/// Most entries in one `List` reply. The reply counts the remaining ones.
pub const MAX_LIST_ENTRIES: u32 = 10_000;
/// Most log bytes in one `JobRead` reply.
pub const MAX_LOG_READ_BYTES: u32 = 1 << 20;
/// Longest deadline, in milliseconds: 30 days.
pub const MAX_TIMEOUT_MS: u64 = 30 * 24 * 3600 * 1000;

/// Longest pattern of a search, in bytes.
pub const MAX_PATTERN_BYTES: usize = 64 << 10;

/// Most hits in the reply to one search.
pub const MAX_SEARCH_HITS: u32 = 10_000;

/// Longest search, in milliseconds.
pub const MAX_SEARCH_MS: u64 = 600_000;

/// Largest program that a guest keeps in memory, in bytes.
pub const MAX_PROGRAM_BYTES: u64 = 32 << 20;

/// Most bytes of one line in the reply to a search.
pub const MAX_LINE_BYTES: usize = 2000;

/// Longest matching line that the reply to a search contains whole, in bytes.
pub const MAX_WHOLE_LINE_BYTES: usize = 300;

/// Number of bytes before and after the match that the reply contains of a longer line.
pub const AROUND_MATCH_BYTES: usize = 120;

/// Largest file that can be edited, in bytes.
pub const MAX_EDIT_BYTES: u64 = 32 << 20;

/// Largest previous content that a reply contains, in bytes.
pub const MAX_OLD_BYTES: u64 = 1 << 20;

/// Most replacements in one edit.
pub const MAX_REPLACEMENTS: usize = 1000;

/// Most bytes of the diff in the reply to an edit.
pub const MAX_DIFF_BYTES: usize = 64 << 10;
/// Largest file mode creation mask: every permission bit.
pub const MAX_UMASK: u32 = 0o777;

/// Most descriptors of one command besides standard input, output and error.
pub const MAX_DESCRIPTORS: usize = 16;

/// Highest number of such a descriptor.
pub const MAX_DESCRIPTOR: u32 = 255;
