//! Mounts of a process, read from its `mountinfo`.

use crate::mount_path::unescape;
use crate::plan::BytePath;
use rustix::fd::AsFd;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// One line of `mountinfo` (`proc_pid_mountinfo(5)`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountEntry {
    /// Mount point.
    pub target: BytePath,
    /// Type of its file system.
    pub kind: String,
    /// True if no file can be changed through it.
    pub is_read_only: bool,
    /// True if set-user-id bits and file capabilities have no effect in it.
    pub is_without_set_user_id: bool,
    /// True if device nodes have no effect in it.
    pub is_without_devices: bool,
    /// True if it does not exchange mount events with other mounts.
    pub is_private: bool,
}

impl MountEntry {
    /// Parses one line. `None` if it is malformed.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ').skip(4);
        let (target, options) = (fields.next()?, fields.next()?);
        // Optional fields list the peers of a mount. A dash ends them.
        let is_private = fields.next()? == b"-";
        let kind = if is_private {
            fields.next()?
        } else {
            fields.find(|field| *field == b"-")?;
            fields.next()?
        };
        let has = |word: &[u8]| options.split(|byte| *byte == b',').any(|own| own == word);
        Some(Self {
            target: unescape(target)?.into(),
            kind: String::from_utf8_lossy(kind).into_owned(),
            is_read_only: has(b"ro"),
            is_without_set_user_id: has(b"nosuid"),
            is_without_devices: has(b"nodev"),
            is_private,
        })
    }
}

/// Maximum size of such a table in bytes: some 30,000 mounts.
const MAX_TABLE_BYTES: usize = 4 << 20;

/// Returns all mounts of the process that opened `table`, its `mountinfo`.
///
/// # Errors
/// Those of read(2); `EFBIG` if the table is too large, `EINVAL` if it is malformed.
pub(crate) fn read_table(table: impl AsFd) -> Result<Vec<MountEntry>, Errno> {
    let mut content = Vec::with_capacity(8 << 10);
    loop {
        let room = rustix::buffer::spare_capacity(&mut content);
        if rustix::io::read(&table, room)? == 0 {
            break;
        }
        if content.len() > MAX_TABLE_BYTES {
            return Err(Errno::FBIG);
        }
        content.reserve(8 << 10);
    }
    content
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| MountEntry::parse(line).ok_or(Errno::INVAL))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_line_of_mountinfo_is_understood() {
        let line = br"36 35 98:0 /a /with\040blank\134s ro,nosuid,relatime master:1 shared:2 - ext4 /dev/x rw";
        let entry = MountEntry::parse(line).unwrap();
        assert_eq!(entry.target.as_path(), Path::new(r"/with blank\s"));
        assert_eq!(entry.kind, "ext4");
        assert!(entry.is_read_only && entry.is_without_set_user_id);
        assert!(!entry.is_without_devices && !entry.is_private);
        let own = MountEntry::parse(b"1 2 0:3 / / rw,nodev - tmpfs none rw").unwrap();
        assert!(own.is_private && own.is_without_devices && !own.is_read_only);
        assert_eq!(MountEntry::parse(b"1 2 0:3 / /"), None);
    }
}
