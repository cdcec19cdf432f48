//! Programs for the inside, embedded in compressed form: they are a quarter of this program, and
//! most runs do not need their bytes (the guest is on disk after the first start; see
//! [`kept`](super::kept)).

use crate::fault;
use glovebox_proto::Fault;

/// Embedded program from the build script, compressed with zstd.
#[derive(Debug)]
pub struct CarriedProgram {
    name: &'static str,
    packed: &'static [u8],
    len: usize,
    blake3: &'static str,
}

/// Embeds a program that the build script wrote to `OUT_DIR`, with the variables that it set.
macro_rules! carried {
    ($name:literal, $prefix:literal) => {
        CarriedProgram::new(
            $name,
            include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".zst")),
            env!(concat!("GLOVEBOX_", $prefix, "_BYTES")),
            env!(concat!("GLOVEBOX_", $prefix, "_BLAKE3")),
        )
    };
}

/// The static guest.
pub static GUEST: CarriedProgram = carried!("glovebox-guest", "GUEST");
/// The static program that runs scripts (`crates/js`), copied into sandboxes that need it.
pub static SCRIPTS: CarriedProgram = carried!("glovebox-js", "SCRIPTS");

impl CarriedProgram {
    const fn new(
        name: &'static str,
        packed: &'static [u8],
        len: &'static str,
        blake3: &'static str,
    ) -> Self {
        let Ok(len) = usize::from_str_radix(len, 10) else {
            panic!("the build script sets a number of bytes");
        };
        Self {
            name,
            packed,
            len,
            blake3,
        }
    }

    /// Returns the BLAKE3 hash of the program, in hexadecimal.
    pub const fn blake3(&self) -> &'static str {
        self.blake3
    }

    /// Returns the size of the program, in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Unpacks the program. Takes a few milliseconds, and memory of the size of the program, for
    /// each call.
    ///
    /// # Errors
    /// `internal` if the embedded copy is damaged or memory runs out.
    pub fn unpack(&self) -> Result<Vec<u8>, Fault> {
        let mut bytes = vec![0; self.len];
        match zstd_safe::decompress(bytes.as_mut_slice(), self.packed) {
            Ok(len) if len == self.len => Ok(bytes),
            Ok(len) => Err(self.damaged(&format!("{len} bytes instead of {}", self.len))),
            Err(code) => Err(self.damaged(zstd_safe::get_error_name(code))),
        }
    }

    fn damaged(&self, why: &str) -> Fault {
        let name = self.name;
        fault::internal(format!("cannot unpack the embedded {name}: {why}"))
            .remedy("install glovebox again")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unpacked_is_what_was_built() {
        for program in [&GUEST, &SCRIPTS] {
            let bytes = program.unpack().unwrap();
            assert_eq!(bytes.len(), program.len());
            assert_eq!(blake3::hash(&bytes).to_hex().as_str(), program.blake3());
            assert_eq!(&bytes[..4], b"\x7fELF");
        }
    }

    #[test]
    fn a_damaged_copy_is_named() {
        let half = CarriedProgram {
            packed: &GUEST.packed[..GUEST.packed.len() / 2],
            ..carried!("glovebox-guest", "GUEST")
        };
        let longer = CarriedProgram {
            len: GUEST.len + 1,
            ..carried!("glovebox-guest", "GUEST")
        };
        for program in [half, longer] {
            let fault = program.unpack().unwrap_err();
            let message = fault.message;
            assert!(
                message.starts_with("cannot unpack the embedded glovebox-guest: "),
                "{message}"
            );
        }
    }
}
