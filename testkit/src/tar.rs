//! Builder of tar archives for tests, valid and invalid ones.

/// Length of a header, and the multiple that contents are padded to, in bytes.
const BLOCK_BYTES: usize = 512;

/// Builder of an archive. It checks nothing, so it can write invalid archives.
#[derive(Debug, Clone, Default)]
pub struct TarBuilder {
    bytes: Vec<u8>,
}

impl TarBuilder {
    /// Creates an archive without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry of any kind (the byte at 156 of its header).
    #[must_use]
    pub fn entry(self, kind: u8, path: &str, link: &str, content: &[u8]) -> Self {
        let size = content.len() as u64;
        let mut this = self.header(kind, 0o644, path, link, size);
        this.bytes.extend_from_slice(content);
        let end = this.bytes.len().next_multiple_of(BLOCK_BYTES);
        this.bytes.resize(end, 0);
        this
    }

    /// Adds a header without content. A text that is longer than its field is truncated.
    #[must_use]
    pub fn header(mut self, kind: u8, mode: u32, path: &str, link: &str, size: u64) -> Self {
        let mut block = [0; BLOCK_BYTES];
        let mut put = |at: usize, max: usize, text: &[u8]| {
            let len = text.len().min(max);
            block[at..at + len].copy_from_slice(&text[..len]);
        };
        put(0, 100, path.as_bytes());
        put(100, 8, format!("{mode:07o}\0").as_bytes());
        put(124, 12, format!("{size:011o}\0").as_bytes());
        put(148, 8, b"        ");
        put(156, 1, &[kind]);
        put(157, 100, link.as_bytes());
        put(257, 8, b"ustar\x0000");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&block);
        self
    }

    /// Adds a file.
    #[must_use]
    pub fn file(self, path: &str, content: &[u8]) -> Self {
        self.entry(b'0', path, "", content)
    }

    /// Adds a directory.
    #[must_use]
    pub fn dir(self, path: &str) -> Self {
        self.entry(b'5', path, "", b"")
    }

    /// Adds a symbolic link.
    #[must_use]
    pub fn link(self, path: &str, target: &str) -> Self {
        self.entry(b'2', path, target, b"")
    }

    /// Adds an extended record about the next entry.
    #[must_use]
    pub fn record(self, key: &str, value: &str) -> Self {
        self.entry(b'x', "pax", "", &record(key, value))
    }

    /// Adds a record about every further entry.
    #[must_use]
    pub fn global(self, key: &str, value: &str) -> Self {
        self.entry(b'g', "pax", "", &record(key, value))
    }

    /// Adds bytes unchanged.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Returns the archive with its end.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(&[0; 2 * BLOCK_BYTES]);
        self.bytes
    }

    /// Returns the archive without its end.
    pub fn unfinished(self) -> Vec<u8> {
        self.bytes
    }
}

/// Returns `LEN KEY=VALUE\n`; the length counts its own digits.
fn record(key: &str, value: &str) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut len = rest;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    format!("{len} {key}={value}\n").into_bytes()
}
