//! Output of a script: its beginning is sent at once, its end when the script ends, with the number
//! of bytes that were left out in between.

/// Bytes that are sent as they are printed.
const HEAD_BYTES: usize = 128 << 10;
/// Bytes that are kept of the end.
const TAIL_BYTES: usize = 64 << 10;
/// Bytes that are collected before they are sent.
const PIECE_BYTES: usize = 8 << 10;

/// Output of one script.
#[derive(Debug, Default)]
pub(crate) struct Console {
    pending: String,
    head: usize,
    tail: String,
    skipped: u64,
}

impl Console {
    /// Adds output. Returns the collected beginning if there is enough to send.
    pub(crate) fn print(&mut self, text: &str) -> Option<String> {
        let mut rest = text;
        if self.tail.is_empty() {
            let at = text.floor_char_boundary(text.len().min(HEAD_BYTES - self.head));
            self.pending.push_str(&text[..at]);
            self.head += at;
            rest = &text[at..];
        }
        if !rest.is_empty() {
            let from = rest.len().saturating_sub(TAIL_BYTES);
            let from = rest.ceil_char_boundary(from);
            self.skipped += from as u64;
            if from > 0 {
                self.skipped += self.tail.len() as u64;
                self.tail.clear();
            }
            self.tail.push_str(&rest[from..]);
            if self.tail.len() > 2 * TAIL_BYTES {
                let old = self.tail.ceil_char_boundary(self.tail.len() - TAIL_BYTES);
                self.tail.drain(..old);
                self.skipped += old as u64;
            }
        }
        (self.pending.len() >= PIECE_BYTES).then(|| std::mem::take(&mut self.pending))
    }

    /// Returns the part of the beginning that has not been sent.
    pub(crate) fn flush(&mut self) -> Option<String> {
        (!self.pending.is_empty()).then(|| std::mem::take(&mut self.pending))
    }

    /// Returns the end of the output, and the number of bytes left out before it. `None` if the
    /// beginning is all.
    pub(crate) fn finish(&mut self) -> Option<(String, u64)> {
        (!self.tail.is_empty()).then(|| (std::mem::take(&mut self.tail), self.skipped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(texts: &[&str]) -> (String, Option<(String, u64)>) {
        let mut console = Console::default();
        let mut sent = String::new();
        for text in texts {
            sent.extend(console.print(text));
        }
        sent.extend(console.flush());
        (sent, console.finish())
    }

    #[test]
    fn little_is_sent_whole() {
        assert_eq!(all(&["a\n", "é\n"]), ("a\né\n".to_owned(), None));
        assert_eq!(all(&[]), (String::new(), None));
    }

    #[test]
    fn of_much_both_ends_are_kept_and_the_rest_is_counted() {
        for piece in ["é".repeat(3), "é".repeat(40_000), "xé".repeat(300_000)] {
            let texts = vec![piece.as_str(); 1_200_000 / piece.len() + 1];
            let total = texts.iter().map(|text| text.len()).sum::<usize>();
            let (sent, rest) = all(&texts);
            let (tail, skipped) = rest.unwrap();
            assert!(sent.len() <= HEAD_BYTES && tail.len() <= 2 * TAIL_BYTES);
            assert_eq!(sent.len() + tail.len() + skipped as usize, total);
            let whole = texts.concat();
            assert!(whole.starts_with(&sent) && whole.ends_with(&tail));
        }
    }
}
