//! Errors of reading an archive.

use glovebox_proto::{Code, Fault};
use std::fmt;
use std::io;

/// Maximum number of characters of a path in a message.
const SHOWN_CHARS: usize = 200;

/// Defect for which an archive is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArchiveProblem {
    /// The archive is neither tar nor tar compressed with gzip.
    Format,
    /// A checksum, number or padding is wrong.
    Corrupt,
    /// The archive has no end marker.
    Cut,
    /// An entry is of an unsupported kind, such as a sparse file or a part of several volumes.
    Unsupported,
    /// A path begins at the root.
    AbsolutePath,
    /// A path has a component `..`.
    ParentPath,
    /// A path is not valid in a workspace: too long, with an empty component, or a name that
    /// Glovebox reserves.
    BadName,
    /// A path has too many components.
    TooDeep,
    /// A path leads through a file or a link.
    BeneathFile,
    /// Two entries have the same path.
    Duplicate,
    /// A device, FIFO or socket.
    SpecialFile,
    /// A hard link to something other than a file earlier in the archive.
    HardLink,
    /// A symbolic link that leads out of the tree, or in a circle.
    LinkLeadsOut,
    /// An entry in a repository's own directory, or a link into one.
    Git,
    /// The archive has more entries than the quota allows.
    TooManyEntries,
    /// The archive has more bytes than the quota allows.
    TooLarge,
}

impl ArchiveProblem {
    /// All variants.
    pub const ALL: [Self; 16] = [
        Self::Format,
        Self::Corrupt,
        Self::Cut,
        Self::Unsupported,
        Self::AbsolutePath,
        Self::ParentPath,
        Self::BadName,
        Self::TooDeep,
        Self::BeneathFile,
        Self::Duplicate,
        Self::SpecialFile,
        Self::HardLink,
        Self::LinkLeadsOut,
        Self::Git,
        Self::TooManyEntries,
        Self::TooLarge,
    ];

    /// Returns the stable identifier for machine-readable output.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Format => "archive-format",
            Self::Corrupt => "archive-corrupt",
            Self::Cut => "archive-cut",
            Self::Unsupported => "archive-unsupported",
            Self::AbsolutePath => "archive-absolute-path",
            Self::ParentPath => "archive-parent-path",
            Self::BadName => "archive-bad-name",
            Self::TooDeep => "archive-too-deep",
            Self::BeneathFile => "archive-beneath-file",
            Self::Duplicate => "archive-duplicate",
            Self::SpecialFile => "archive-special-file",
            Self::HardLink => "archive-hard-link",
            Self::LinkLeadsOut => "archive-link-leads-out",
            Self::Git => "archive-git",
            Self::TooManyEntries => "archive-too-many-entries",
            Self::TooLarge => "archive-too-large",
        }
    }

    /// Returns the defect as a clause that follows "the archive" or the path.
    const fn told(self) -> &'static str {
        match self {
            Self::Format => "is neither tar nor tar.gz",
            Self::Corrupt => "contradicts itself",
            Self::Cut => "ends before its end",
            Self::Unsupported => "is of a kind that is not taken",
            Self::AbsolutePath => "begins at the root",
            Self::ParentPath => "goes up with `..`",
            Self::BadName => "is not a name that a workspace may have",
            Self::TooDeep => "lies too deep",
            Self::BeneathFile => "leads through a file or a link",
            Self::Duplicate => "is there twice",
            Self::SpecialFile => "is a device, FIFO or socket",
            Self::HardLink => "is a hard link to something that is no file before it",
            Self::LinkLeadsOut => "is a link that leads out of the tree",
            Self::Git => "lies in a repository's own directory, or leads there",
            Self::TooManyEntries => "has more entries than are taken",
            Self::TooLarge => "has more bytes than are taken",
        }
    }

    /// Returns the hint for the user.
    const fn remedy(self) -> &'static str {
        match self {
            Self::Format => {
                "send a tar archive, plain or gzipped, as the body and nothing around it"
            }
            Self::Corrupt | Self::Cut => "make the archive again, and send all of it",
            Self::Unsupported => "make it in the format pax, whole and without sparse files",
            Self::AbsolutePath | Self::ParentPath => {
                "make it in the directory itself: `cd DIR && tar -czf FILE .`"
            }
            Self::BadName | Self::TooDeep | Self::Duplicate | Self::BeneathFile => {
                "rename it, or leave it out of the archive"
            }
            Self::SpecialFile | Self::LinkLeadsOut => "leave it out of the archive",
            Self::HardLink => "store its content in the place of the link",
            Self::Git => "leave repositories out, or make the archive with `git archive`",
            Self::TooManyEntries | Self::TooLarge => {
                "leave out what can be made again, such as build output and dependencies"
            }
        }
    }
}

/// Error of unpacking an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveError {
    /// The archive breaks a rule.
    Refused {
        /// Rule that is broken.
        problem: ArchiveProblem,
        /// Path of the offending entry, escaped; `None` if the whole archive is at fault.
        path: Option<String>,
    },
    /// The archive could not be read, or its content could not be written.
    Failed(Fault),
}

impl ArchiveError {
    pub(super) const fn whole(problem: ArchiveProblem) -> Self {
        let path = None;
        Self::Refused { problem, path }
    }

    pub(super) fn at(problem: ArchiveProblem, path: &[u8]) -> Self {
        let shown = String::from_utf8_lossy(path);
        let shown = shown.chars().flat_map(char::escape_debug);
        Self::Refused {
            problem,
            path: Some(shown.take(SHOWN_CHARS).collect()),
        }
    }

    /// Converts an error of reading the archive or decompressing it.
    pub(super) fn reading(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::whole(ArchiveProblem::Cut),
            // The gzip decoder reports invalid input with these kinds.
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                Self::whole(ArchiveProblem::Corrupt)
            }
            io::ErrorKind::FileTooLarge => Self::whole(ArchiveProblem::TooLarge),
            io::ErrorKind::TimedOut => Self::Failed(
                Fault::failed(Code::TimedOut, "the archive took too long to arrive").retryable(),
            ),
            _ => Self::Failed(
                Fault::failed(Code::Io, format!("the archive did not arrive: {error}")).retryable(),
            ),
        }
    }

    /// Converts the error to a fault.
    pub fn into_fault(self) -> Fault {
        match self {
            Self::Failed(fault) => fault,
            Self::Refused { problem, path } => {
                let code = match problem {
                    ArchiveProblem::TooLarge | ArchiveProblem::TooManyEntries => Code::TooLarge,
                    _ => Code::InvalidArgument,
                };
                let what = path.map_or_else(
                    || "the archive".to_owned(),
                    |path| format!("`{path}` in the archive"),
                );
                Fault::failed(code, format!("{what} {}", problem.told())).remedy(problem.remedy())
            }
        }
    }
}

impl From<Fault> for ArchiveError {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
    }
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.clone().into_fault().message)
    }
}

impl std::error::Error for ArchiveError {}
