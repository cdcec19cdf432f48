//! Signatures of bundles: Ed25519 over the text of a bundle, with keys that the operator names.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use glovebox_proto::{Code, Fault};
use ring::signature::{ED25519, UnparsedPublicKey};
use std::str::FromStr;

const KEY_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;
const MAX_NAME_CHARS: usize = 64;
/// Header of an Ed25519 public key as written by `openssl pkey -pubout` (SubjectPublicKeyInfo, RFC
/// 8410).
const SPKI_HEAD: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// Public key whose signatures are accepted, with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleKey {
    name: String,
    key: [u8; KEY_BYTES],
}

impl FromStr for BundleKey {
    type Err = String;

    /// Parses `NAME=KEY`. The key is in base64, as 32 bytes or as `openssl pkey -pubout -outform
    /// DER` writes it.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, key) = text
            .split_once('=')
            .ok_or("it is not NAME=KEY, the key in base64")?;
        let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        if name.is_empty() || name.len() > MAX_NAME_CHARS || !name.chars().all(is_word) {
            return Err(format!(
                "`{}` is no name of a key: letters, digits and -_.@, at most {MAX_NAME_CHARS}",
                name.escape_debug()
            ));
        }
        let bytes = STANDARD
            .decode(key.trim())
            .map_err(|error| format!("the key `{name}` is no base64: {error}"))?;
        let bytes = bytes.strip_prefix(&SPKI_HEAD).unwrap_or(&bytes);
        let key = bytes.try_into().map_err(|_| {
            format!(
                "the key `{name}` is no Ed25519 public key: it has {} bytes, not {KEY_BYTES}",
                bytes.len()
            )
        })?;
        Ok(Self {
            name: name.to_owned(),
            key,
        })
    }
}

/// Valid signature of a bundle's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedSignature {
    /// Name of the key.
    pub signer: String,
    /// Bytes of the signature.
    pub signature: Vec<u8>,
}

/// Keys of an operator. If there are none, no signature is required.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleKeys(Vec<BundleKey>);

impl BundleKeys {
    /// Creates a set of keys.
    pub const fn new(keys: Vec<BundleKey>) -> Self {
        Self(keys)
    }

    /// Returns true if bundles need a signature.
    pub const fn is_required(&self) -> bool {
        !self.0.is_empty()
    }

    /// Checks the base64 signature that came with the text of a bundle. `None` if no signature is
    /// required.
    ///
    /// # Errors
    /// `unsigned` for a bundle that no key has signed.
    pub fn check(
        &self,
        source: &[u8],
        signature: Option<&str>,
    ) -> Result<Option<CheckedSignature>, Fault> {
        if !self.is_required() {
            return Ok(None);
        }
        let refused = |message: &str| {
            Fault::refused(Code::Unsigned, message).remedy(
                "sign the bundle with Ed25519, for instance `openssl pkeyutl -sign -rawin -inkey KEY -in BUNDLE | \
                 base64 -w0`, and send that as `Glovebox-Signature`",
            )
        };
        let Some(signature) = signature else {
            return Err(refused(
                "only signed bundles are accepted here, and this one has no signature",
            ));
        };
        let signature = STANDARD
            .decode(signature.trim())
            .ok()
            .filter(|bytes| bytes.len() == SIGNATURE_BYTES)
            .ok_or_else(|| refused("the signature is not the base64 of an Ed25519 signature"))?;
        let signer = self.find_signer(source, &signature).ok_or_else(|| {
            refused("the signature is of none of the keys that are accepted here")
        })?;
        Ok(Some(CheckedSignature {
            signer: signer.to_owned(),
            signature,
        }))
    }

    /// Returns the name of the key that made this signature of a bundle's text.
    pub fn find_signer(&self, source: &[u8], signature: &[u8]) -> Option<&str> {
        let signer = self.0.iter().find(|one| {
            let key = UnparsedPublicKey::new(&ED25519, one.key);
            key.verify(source, signature).is_ok()
        });
        Some(&signer?.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    fn pair(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
    }

    fn key(name: &str, pair: &Ed25519KeyPair) -> BundleKey {
        let key = STANDARD.encode(pair.public_key().as_ref());
        format!("{name}={key}").parse().unwrap()
    }

    #[test]
    fn only_what_a_named_key_has_signed_is_accepted() {
        let (ann, bob) = (pair(1), pair(2));
        let keys = BundleKeys::new(vec![key("ann", &ann), key("bob", &bob)]);
        let sign = |pair: &Ed25519KeyPair, text: &[u8]| STANDARD.encode(pair.sign(text).as_ref());
        let good = sign(&bob, b"text");
        let checked = keys.check(b"text", Some(&good)).unwrap().unwrap();
        assert_eq!(checked.signer, "bob");
        assert_eq!(keys.find_signer(b"text", &checked.signature), Some("bob"));
        let later = BundleKeys::new(vec![key("ann", &ann)]);
        assert_eq!(later.find_signer(b"text", &checked.signature), None);
        let stranger = sign(&pair(3), b"text");
        for (text, signature) in [
            (&b"text"[..], None),
            (b"texT", Some(good.as_str())),
            (b"text", Some(&stranger)),
            (b"text", Some("AAAA")),
            (b"text", Some("not base64!")),
        ] {
            let fault = keys.check(text, signature).unwrap_err();
            assert_eq!(fault.code, Code::Unsigned, "{signature:?}");
        }
        assert_eq!(BundleKeys::default().check(b"text", None).unwrap(), None);
    }

    #[test]
    fn a_key_is_read_in_both_forms() {
        let pair = pair(1);
        let mut der = SPKI_HEAD.to_vec();
        der.extend_from_slice(pair.public_key().as_ref());
        let read: BundleKey = format!("ann={}", STANDARD.encode(der)).parse().unwrap();
        assert_eq!(read, key("ann", &pair));
        for text in ["", "ann", "ann=", "ann=AAAA", "a b=AAAA", "=AAAA"] {
            assert!(text.parse::<BundleKey>().is_err(), "{text}");
        }
    }
}
