//! Names in a patch, quoted so that git reads the same bytes.

use crate::RelPath;

/// Returns `prefix` and `path`, in double quotes with C escapes if git would not read them
/// correctly otherwise.
pub(super) fn quoted(prefix: &str, path: &RelPath) -> Vec<u8> {
    quote(prefix, path.as_bytes())
}

/// Returns `prefix` and the bytes of a name, quoted as by [`quoted`].
pub(crate) fn quote(prefix: &str, bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(prefix.len() + bytes.len() + 2);
    // Git does not quote spaces, and then has to guess where a name ends.
    let is_plain = bytes
        .iter()
        .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'));
    if is_plain {
        text.extend_from_slice(prefix.as_bytes());
        text.extend_from_slice(bytes);
        return text;
    }
    text.push(b'"');
    text.extend_from_slice(prefix.as_bytes());
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', byte]),
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\t' => text.extend_from_slice(b"\\t"),
            b'\r' => text.extend_from_slice(b"\\r"),
            b' '..=b'~' => text.push(byte),
            _ => text.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
        }
    }
    text.push(b'"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_would_misread_are_quoted() {
        let quoted = |name: &[u8]| {
            String::from_utf8(super::quoted("a/", &RelPath::new(name).unwrap())).unwrap()
        };
        assert_eq!(quoted(b"src/x.rs"), "a/src/x.rs");
        assert_eq!(quoted(b"a b"), "\"a/a b\"");
        assert_eq!(quoted(b"q\"\\\n\t\x01\xff"), r#""a/q\"\\\n\t\001\377""#);
        assert_eq!(quoted("é".as_bytes()), r#""a/\303\251""#);
    }
}
