//! Git's format of binary parts: a literal, deflated, in base 85.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::{self, Read, Write};

/// Number of bytes of compressed data per line.
const LINE_BYTES: usize = 52;
/// Digits, as in git's `base85.c`.
const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Writes `content`, whose length is `size` bytes, as one literal. Returns the number of bytes
/// read.
pub(super) fn literal(size: u64, content: &mut dyn Read, out: &mut dyn Write) -> io::Result<u64> {
    writeln!(out, "literal {size}")?;
    let mut encoder = ZlibEncoder::new(Lines::new(out), Compression::default());
    let read = io::copy(content, &mut encoder)?;
    encoder.finish()?.finish()?;
    Ok(read)
}

/// Writer that splits a stream into lines of base 85.
struct Lines<'a> {
    out: &'a mut dyn Write,
    pending: Vec<u8>,
}

impl<'a> Lines<'a> {
    fn new(out: &'a mut dyn Write) -> Self {
        Self {
            out,
            pending: Vec::with_capacity(LINE_BYTES),
        }
    }

    fn line(&mut self) -> io::Result<()> {
        let line = encode_line(&self.pending);
        self.pending.clear();
        self.out.write_all(&line)
    }

    fn finish(mut self) -> io::Result<()> {
        if !self.pending.is_empty() {
            self.line()?;
        }
        self.out.write_all(b"\n")
    }
}

impl Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for chunk in bytes.chunks(LINE_BYTES) {
            let (now, later) = chunk.split_at(chunk.len().min(LINE_BYTES - self.pending.len()));
            self.pending.extend_from_slice(now);
            if self.pending.len() == LINE_BYTES {
                self.line()?;
            }
            self.pending.extend_from_slice(later);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Encodes one line: its length as a letter, then groups of four bytes as five digits.
fn encode_line(bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len() as u8;
    let mut line = Vec::with_capacity(2 + LINE_BYTES / 4 * 5);
    line.push(if length <= 26 {
        b'A' + length - 1
    } else {
        b'a' + length - 27
    });
    for group in bytes.chunks(4) {
        let mut word = [0_u8; 4];
        word[..group.len()].copy_from_slice(group);
        let mut value = u32::from_be_bytes(word);
        let mut digits = [0_u8; 5];
        for digit in digits.iter_mut().rev() {
            *digit = DIGITS[(value % 85) as usize];
            value /= 85;
        }
        line.extend_from_slice(&digits);
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_git() {
        // The empty deflated literal that ends every deletion of a binary file.
        assert_eq!(
            encode_line(&[0x78, 0x9c, 0x03, 0x00, 0x00, 0x00, 0x00, 0x01]),
            b"Hc$@<O00001\n"
        );
        assert_eq!(encode_line(&[0; 27])[0], b'a');
        assert_eq!(encode_line(&[0; 26])[0], b'Z');
        assert_eq!(encode_line(&[0; 52]).len(), 1 + 65 + 1);
    }

    #[test]
    fn however_it_is_written_the_lines_are_the_same() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let cut = |size: usize| {
            let mut text = Vec::new();
            let mut lines = Lines::new(&mut text);
            for part in bytes.chunks(size) {
                lines.write_all(part).unwrap();
            }
            lines.finish().unwrap();
            text
        };
        assert_eq!(cut(1), cut(1000));
        assert_eq!(cut(53), cut(7));
    }
}
