//! Extended records of an entry (POSIX.1-2017, `pax`, "pax Extended Header"): `LEN KEY=VALUE\n`.

use super::ArchiveProblem;

/// Values of the supported records of an entry; `None` if a record is missing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PaxRecords {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
}

impl PaxRecords {
    /// Decodes records. Ignores times, owners and attributes.
    ///
    /// # Errors
    /// [`ArchiveProblem::Corrupt`] for invalid records, [`ArchiveProblem::Unsupported`] for a
    /// sparse file.
    // TRUST: the bytes are untrusted. A record never reaches beyond them, and each is read once.
    pub(super) fn read(mut bytes: &[u8]) -> Result<Self, ArchiveProblem> {
        let corrupt = ArchiveProblem::Corrupt;
        let mut records = Self::default();
        while !bytes.is_empty() {
            let space = bytes.iter().position(|byte| *byte == b' ').ok_or(corrupt)?;
            let len = std::str::from_utf8(&bytes[..space]).map_err(|_| corrupt)?;
            let len: usize = len.parse().map_err(|_| corrupt)?;
            if len <= space + 1 || len > bytes.len() || bytes[len - 1] != b'\n' {
                return Err(corrupt);
            }
            let record = &bytes[space + 1..len - 1];
            bytes = &bytes[len..];
            let equals = record
                .iter()
                .position(|byte| *byte == b'=')
                .ok_or(corrupt)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => records.path = Some(value.to_vec()),
                b"linkpath" => records.link = Some(value.to_vec()),
                b"size" => {
                    let digits = std::str::from_utf8(value).map_err(|_| corrupt)?;
                    records.size = Some(digits.parse().map_err(|_| corrupt)?);
                }
                key if key.starts_with(b"GNU.sparse.") => return Err(ArchiveProblem::Unsupported),
                _ => {}
            }
        }
        Ok(records)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.path.is_none() && self.link.is_none() && self.size.is_none()
    }
}

/// Encodes one record. Its length includes the digits of the length.
pub(super) fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = 1 + key.len() + 1 + value.len() + 1;
    let mut len = rest;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    let mut record = format!("{len} {key}=").into_bytes();
    record.extend_from_slice(value);
    record.push(b'\n');
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_are_written() {
        for len in [1, 80, 88, 89, 90, 91, 980, 988, 989, 990, 4000] {
            let path = vec![b'x'; len];
            let mut bytes = record("mtime", b"1.5");
            bytes.extend(record("path", &path));
            assert_eq!(PaxRecords::read(&bytes).unwrap().path, Some(path), "{len}");
        }
        let records = PaxRecords::read(&record("comment", b"a=b\nc")).unwrap();
        assert!(records.is_empty());
    }

    #[test]
    fn what_are_no_records_is_refused() {
        for wrong in [
            &b"x"[..],
            b"5 a=b",
            b"99 path=a\n",
            b"0 path=a\n",
            b"2 \n",
            b"7 path\n",
            b"10 path=ab\0",
            b"18446744073709551616 a=b\n",
            b"9 size=x\n",
        ] {
            assert!(PaxRecords::read(wrong).is_err(), "{wrong:?}");
        }
        let sparse = record("GNU.sparse.major", b"1");
        assert_eq!(PaxRecords::read(&sparse), Err(ArchiveProblem::Unsupported));
    }
}
