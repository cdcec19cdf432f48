//! Programs for the inside as this one carries them: compressed, since they are a quarter of it and most
//! runs never want their bytes (the guest is on disk after the first start, see [`kept`](super::kept)).

use crate::fault;
use glovebox_proto::Fault;

/// A program of the build script's, compressed with zstd.
#[derive(Debug)]
pub struct CarriedProgram {
    name: &'static str,
    packed: &'static [u8],
    len: usize,
    blake3: &'static str,
}

/// One that the build script left in `OUT_DIR`, with the variables it has set for it.
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
/// The static program that runs scripts (`crates/js`), to be put into a sandbox that wants it.
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

    /// BLAKE3 of the program, in hex.
    pub const fn blake3(&self) -> &'static str {
        self.blake3
    }

    /// Bytes of the program.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The program, unpacked anew for every caller: a few milliseconds and as much memory as it has bytes.
    ///
    /// # Errors
    /// `internal` when this program's own copy of it is damaged, or there is no memory.
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
