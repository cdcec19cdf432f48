//! Detects secrets by their content: private keys, and tokens of known formats.

use glovebox_spec::token_shapes::TOKEN_SHAPES;
use memchr::memmem::Finder;
use std::sync::LazyLock;

/// Types of PEM blocks that are public.
const PUBLIC_BLOCKS: &[&str] = &[
    "CERTIFICATE",
    "CERTIFICATE REQUEST",
    "DH PARAMETERS",
    "EC PARAMETERS",
    "NEW CERTIFICATE REQUEST",
    "PKCS7",
    "PUBLIC KEY",
    "RSA PUBLIC KEY",
    "TRUSTED CERTIFICATE",
    "X509 CERTIFICATE",
    "X509 CRL",
];

/// Returns true if a text contains a private key or a token.
pub(super) fn has_secret(text: &[u8]) -> bool {
    has_private_key(text) || has_token(text)
}

fn has_private_key(text: &[u8]) -> bool {
    blocks(text).any(|kind| kind.ends_with(b"PRIVATE KEY") || kind.ends_with(b"PRIVATE KEY BLOCK"))
        || text.starts_with(b"PuTTY-User-Key-File-")
}

/// Returns true if a text is PEM and all of its blocks are public.
pub(super) fn is_public_pem(text: &[u8]) -> bool {
    let is_public = |kind: &[u8]| PUBLIC_BLOCKS.iter().any(|known| known.as_bytes() == kind);
    let mut blocks = blocks(text).peekable();
    blocks.peek().is_some() && blocks.all(is_public)
}

/// Returns the types of the PEM blocks in a text. A block may begin within a line, as in JSON.
fn blocks(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    const MAX_KIND_BYTES: usize = 64;
    let mut rest = text;
    std::iter::from_fn(move || {
        let at = memchr::memmem::find(rest, BEGIN)?;
        rest = &rest[at + BEGIN.len()..];
        let near = &rest[..rest.len().min(MAX_KIND_BYTES)];
        Some(&near[..memchr::memmem::find(near, b"-----").unwrap_or(0)])
    })
}

/// Returns true if a text contains a token of a known format.
pub fn has_token(text: &[u8]) -> bool {
    static PREFIXES: LazyLock<Vec<Finder<'static>>> = LazyLock::new(|| {
        TOKEN_SHAPES
            .iter()
            .map(|shape| Finder::new(shape.prefix))
            .collect()
    });
    TOKEN_SHAPES
        .iter()
        .zip(&*PREFIXES)
        .any(|(shape, prefix)| prefix.find_iter(text).any(|at| shape.is_token_at(text, at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_tokens_are_known_by_their_shape() {
        let token = |prefix: &str, count: usize| format!("a: '{prefix}{}'\n", "A1".repeat(count));
        for text in [
            "-----BEGIN PRIVATE KEY-----\nx".to_owned(),
            "-----BEGIN OPENSSH PRIVATE KEY-----".to_owned(),
            "-----BEGIN PGP PRIVATE KEY BLOCK-----".to_owned(),
            r#"{"private_key": "-----BEGIN RSA PRIVATE KEY-----\nMII"}"#.to_owned(),
            "PuTTY-User-Key-File-3: x".to_owned(),
            token("ghp_", 18),
            token("AKIA", 8),
            token("glpat-", 10),
            token("sk-ant-api03-", 12),
        ] {
            assert!(has_secret(text.as_bytes()), "{text}");
        }
        for text in [
            "-----BEGIN CERTIFICATE-----".to_owned(),
            "-----BEGIN".to_owned(),
            "AKIAIOSFODNN7EXAMPLE".to_owned(),
            token("ghp_", 4),
            token("xghp_", 18),
            "ghp_".to_owned(),
            "sk-ant-".to_owned(),
        ] {
            assert!(!has_secret(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn certificates_alone_are_public() {
        let block = |kind: &str| format!("-----BEGIN {kind}-----\nAA\n-----END {kind}-----\n");
        let both = block("CERTIFICATE") + &block("PUBLIC KEY");
        assert!(is_public_pem(both.as_bytes()));
        assert!(!is_public_pem(
            (both + &block("RSA PRIVATE KEY")).as_bytes()
        ));
        for text in [
            "",
            "x",
            "-----BEGIN CERTIFICATE",
            "-----BEGIN SOMETHING-----",
        ] {
            assert!(!is_public_pem(text.as_bytes()), "{text}");
        }
    }
}
