//! Types of file-system objects.

use serde::{Deserialize, Serialize};

/// Type of a file-system object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// FIFO.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}
