//! Paths as the kernel writes them in tables of mounts.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// Decodes a path of a line of `mountinfo`, where blanks and backslashes are written as three octal
/// digits. `None` for an invalid escape.
pub fn unescape(text: &[u8]) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'\\' {
            let digits = std::str::from_utf8(after.get(..3)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 8).ok()?);
            rest = &after[3..];
        } else {
            bytes.push(*first);
        }
    }
    Some(OsString::from_vec(bytes).into())
}
