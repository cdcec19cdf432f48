//! NUL-terminated strings in one block of memory, the form execve(2) wants.

use std::ffi::{CStr, c_char};

/// A list of NUL-terminated byte strings: arguments, environment entries or paths.
///
/// Invariant: every entry starts at a recorded offset, contains no other NUL, and ends with one.
#[derive(Debug, Clone, Default)]
pub struct Strings {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

/// Error of a string that contains a NUL byte, which the kernel does not accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("string {index} contains a NUL byte")]
pub struct NulError {
    /// Position of the string in the list.
    pub index: usize,
}

impl Strings {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            starts: Vec::new(),
        }
    }

    /// Appends one string, given in pieces.
    ///
    /// # Errors
    /// [`NulError`] if a piece contains a NUL byte. The list is then unchanged.
    pub fn push(&mut self, pieces: &[&[u8]]) -> Result<(), NulError> {
        if pieces.iter().any(|piece| piece.contains(&0)) {
            return Err(NulError {
                index: self.starts.len(),
            });
        }
        self.starts.push(self.bytes.len());
        for piece in pieces {
            self.bytes.extend_from_slice(piece);
        }
        self.bytes.push(0);
        Ok(())
    }

    /// Returns the number of strings.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns true if the list has no strings.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Returns the strings in order.
    pub fn iter(&self) -> impl Iterator<Item = &CStr> {
        self.starts
            .iter()
            .filter_map(|&start| CStr::from_bytes_until_nul(self.bytes.get(start..)?).ok())
    }

    /// Returns the addresses of the strings followed by a null. They are valid until `self` is
    /// changed or dropped.
    pub(crate) fn pointers(&self) -> Vec<*const c_char> {
        let mut pointers = Vec::with_capacity(self.starts.len() + 1);
        pointers.extend(
            self.starts
                .iter()
                .map(|&start| self.bytes[start..].as_ptr().cast()),
        );
        pointers.push(std::ptr::null());
        pointers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_and_nul_is_refused() {
        let mut strings = Strings::new();
        strings.push(&[b"A", b"=", b"b"]).unwrap();
        strings.push(&[]).unwrap();
        assert_eq!(strings.push(&[b"x\0y"]), Err(NulError { index: 2 }));
        let seen: Vec<_> = strings.iter().map(CStr::to_bytes).collect();
        assert_eq!(seen, [&b"A=b"[..], b""]);
        assert_eq!(strings.pointers().len(), 3);
    }
}
