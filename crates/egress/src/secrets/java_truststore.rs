//! Writes certificates as a Java trust store in the JKS format, without keys.
//!
//! The format has no specification; it is defined by `sun.security.provider.JavaKeyStore` of
//! OpenJDK. It ends with a digest that depends on a password. A JVM checks the digest only if it is
//! given a password, so that the digest is left zero here.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
const TRUSTED_CERTIFICATE: u32 = 2;
const DIGEST_BYTES: usize = 20;

/// Returns a trust store with the certificates of a PEM text. Text that is not a certificate is
/// skipped.
pub fn java_truststore(pem: &str) -> Vec<u8> {
    let certificates: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .filter_map(Result::ok)
        .collect();
    let mut file = Vec::new();
    let count = u32::try_from(certificates.len()).unwrap_or(u32::MAX);
    for number in [MAGIC, VERSION, count] {
        file.extend_from_slice(&number.to_be_bytes());
    }
    for (number, certificate) in (0..count).zip(&certificates) {
        let length = u32::try_from(certificate.len()).unwrap_or(u32::MAX);
        file.extend_from_slice(&TRUSTED_CERTIFICATE.to_be_bytes());
        append_text(&mut file, &format!("certificate-{number}"));
        // Time of addition, in milliseconds since the Unix epoch; readers do not use it.
        file.extend_from_slice(&0_u64.to_be_bytes());
        append_text(&mut file, "X.509");
        file.extend_from_slice(&length.to_be_bytes());
        file.extend_from_slice(certificate);
    }
    file.extend_from_slice(&[0; DIGEST_BYTES]);
    file
}

/// Appends text like `java.io.DataOutput.writeUTF` does for ASCII. The text must be shorter than 64
/// KiB.
fn append_text(file: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    file.extend_from_slice(&length.to_be_bytes());
    file.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_certificate_is_an_entry() {
        let pem = "-----BEGIN CERTIFICATE-----\nAAEC\n-----END CERTIFICATE-----\n";
        let file = java_truststore(&pem.repeat(2));
        assert!(file.starts_with(&[0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2]));
        let entry = b"\0\x0dcertificate-1\0\0\0\0\0\0\0\0\0\x05X.509\0\0\0\x03\x00\x01\x02";
        let end = [entry.as_slice(), &[0; DIGEST_BYTES]].concat();
        assert!(file.ends_with(&end), "{file:?}");
    }
}
