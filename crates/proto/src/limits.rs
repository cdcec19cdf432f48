//! Bounds on everything that crosses the wall. Both sides enforce all of them.

/// Largest payload of a `Request`, `Reply` or `Hello` frame. Linux refuses argument lists above a
/// few MiB (`execve(2)`, "Limits on size of arguments and environment"), so more has no use.
pub const MAX_CONTROL_BYTES: u32 = 4 << 20;
/// Largest payload of one `Data` frame.
pub const MAX_DATA_BYTES: u32 = 128 << 10;
/// Bytes a sender may have in flight on one channel of one request before it must wait for credit.
pub const WINDOW_BYTES: u32 = 512 << 10;
/// Requests one connection may have open at once.
pub const MAX_OPEN_REQUESTS: usize = 4096;
/// Jobs one guest keeps track of, finished ones included (the oldest finished are forgotten first).
pub const MAX_JOBS: usize = 4096;
/// Longest path accepted in a request, in bytes (`PATH_MAX`).
pub const MAX_PATH_BYTES: usize = 4096;
/// Longest single argument or `NAME=value` string Linux accepts (`MAX_ARG_STRLEN`, 32 pages),
/// without its terminating NUL.
pub const MAX_ARG_BYTES: usize = (128 << 10) - 1;
/// Most arguments or environment entries in one request.
pub const MAX_ARGS: usize = 65_536;
/// Most entries one `List` reply carries; the reply says when there are more.
pub const MAX_LIST_ENTRIES: u32 = 10_000;
/// Most log bytes one `JobRead` reply carries.
pub const MAX_LOG_READ_BYTES: u32 = 1 << 20;
/// Longest deadline accepted: 30 days in milliseconds.
pub const MAX_TIMEOUT_MS: u64 = 30 * 24 * 3600 * 1000;

/// Longest pattern of a search, in bytes.
pub const MAX_PATTERN_BYTES: usize = 64 << 10;

/// Most hits one search answers.
pub const MAX_SEARCH_HITS: u32 = 10_000;

/// Longest search, in milliseconds.
pub const MAX_SEARCH_MS: u64 = 600_000;

/// Largest program that a guest holds in memory, in bytes.
pub const MAX_PROGRAM_BYTES: u64 = 32 << 20;

/// Most bytes of one line that a search answers.
pub const MAX_LINE_BYTES: usize = 2000;

/// Longest line with a match that a search answers whole, in bytes.
pub const MAX_WHOLE_LINE_BYTES: usize = 300;

/// Bytes that a search answers on both sides of the match in a longer one.
pub const AROUND_MATCH_BYTES: usize = 120;

/// Largest file that is edited in place, in bytes.
pub const MAX_EDIT_BYTES: u64 = 32 << 20;

/// Largest replaced content that is given back, in bytes.
pub const MAX_OLD_BYTES: u64 = 1 << 20;

/// Most replacements in one edit.
pub const MAX_REPLACEMENTS: usize = 1000;

/// Most bytes of diff that an edit answers.
pub const MAX_DIFF_BYTES: usize = 64 << 10;
/// Largest file mode creation mask: every permission bit.
pub const MAX_UMASK: u32 = 0o777;

/// Most descriptors of one command besides the three standard ones.
pub const MAX_DESCRIPTORS: usize = 16;

/// Highest number of such a descriptor.
pub const MAX_DESCRIPTOR: u32 = 255;
