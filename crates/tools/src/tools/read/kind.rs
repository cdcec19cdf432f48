//! Detection of a file's type by its first bytes, and of an image's dimensions.
//!
//! TRUST: only headers are read, at fixed offsets and with bounds checks. Nothing is decoded.

/// Image formats that models accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Picture {
    Png,
    Jpeg,
    Gif,
    Webp,
}

impl Picture {
    pub(super) fn of(start: &[u8]) -> Option<Self> {
        if start.starts_with(b"\x89PNG\r\n\x1a\n") {
            Some(Self::Png)
        } else if start.starts_with(b"\xff\xd8\xff") {
            Some(Self::Jpeg)
        } else if start.starts_with(b"GIF87a") || start.starts_with(b"GIF89a") {
            Some(Self::Gif)
        } else if start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP") {
            Some(Self::Webp)
        } else {
            None
        }
    }

    pub(super) const fn mime(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }

    /// Returns width and height in pixels, as the header states them.
    pub(super) fn size(self, bytes: &[u8]) -> Option<(u32, u32)> {
        match self {
            Self::Png => Some((big(bytes, 16, 4)?, big(bytes, 20, 4)?)),
            Self::Gif => Some((little(bytes, 6, 2)?, little(bytes, 8, 2)?)),
            Self::Webp => match bytes.get(12..16)? {
                b"VP8X" => Some((little(bytes, 24, 3)? + 1, little(bytes, 27, 3)? + 1)),
                b"VP8 " => Some((
                    little(bytes, 26, 2)? & 0x3fff,
                    little(bytes, 28, 2)? & 0x3fff,
                )),
                b"VP8L" => {
                    let bits = little(bytes, 21, 4)?;
                    Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
                }
                _ => None,
            },
            Self::Jpeg => jpeg(bytes),
        }
    }
}

/// Returns the dimensions in the frame header of a JPEG file. Follows the chain of segments.
fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        match *bytes.get(at + 1)? {
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            // Start of frame, for all coding methods.
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Some((big(bytes, at + 7, 2)?, big(bytes, at + 5, 2)?));
            }
            _ => at += 2 + big(bytes, at + 2, 2)?.max(2) as usize,
        }
    }
}

fn big(bytes: &[u8], at: usize, count: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + count)?;
    Some(
        bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | u32::from(*byte)),
    )
}

fn little(bytes: &[u8], at: usize, count: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + count)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u32::from(*byte)),
    )
}

/// Describes the type of a binary file.
pub(super) fn name(start: &[u8]) -> &'static str {
    let kinds: [(&[u8], &str); 16] = [
        (b"%PDF-", "a PDF document"),
        (b"\x7fELF", "a program (ELF)"),
        (b"PK\x03\x04", "a ZIP archive (or a document in one)"),
        (b"\x1f\x8b", "gzip data"),
        (b"\x28\xb5\x2f\xfd", "zstd data"),
        (b"\xfd7zXZ\x00", "xz data"),
        (b"BZh", "bzip2 data"),
        (b"SQLite format 3\x00", "an SQLite database"),
        (b"RIFF", "RIFF data (WAV or AVI)"),
        (b"OggS", "Ogg data"),
        (b"\x00asm", "a WebAssembly module"),
        (b"!<arch>\n", "an archive of object files"),
        (b"\xca\xfe\xba\xbe", "Java or Mach-O code"),
        (b"\xff\xfe", "text in UTF-16"),
        (b"\xfe\xff", "text in UTF-16"),
        (b"BM", "a bitmap image"),
    ];
    kinds
        .into_iter()
        .find(|(magic, _)| start.starts_with(magic))
        .map_or("binary data", |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pictures_are_known_by_their_header() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0\0\0\0\x80";
        let gif = b"GIF89a\x0a\0\x14\0";
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x0b\x08\0\x10\0\x20";
        let vp8x = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x63\0\0\x31\0\0";
        for (bytes, picture, size) in [
            (&png[..], Picture::Png, (256, 128)),
            (gif, Picture::Gif, (10, 20)),
            (jpeg, Picture::Jpeg, (32, 16)),
            (vp8x, Picture::Webp, (100, 50)),
        ] {
            assert_eq!(Picture::of(bytes), Some(picture));
            assert_eq!(picture.size(bytes), Some(size), "{picture:?}");
        }
        assert_eq!(Picture::of(b"GIF is a format"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_size_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for (start, picture) in [
                (&b""[..], Picture::Png),
                (b"\xff\xd8", Picture::Jpeg),
                (b"", Picture::Gif),
                (b"RIFF0000WEBPVP8L", Picture::Webp),
            ] {
                let _ = picture.size(&[start, &bytes].concat());
            }
        }
    }
}
