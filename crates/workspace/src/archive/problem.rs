//! Why an archive is not taken.

use glovebox_proto::{Code, Fault};
use std::fmt;
use std::io;

/// Characters of a path that are shown.
const SHOWN_CHARS: usize = 200;

/// What is wrong with an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArchiveProblem {
    /// It is neither a tar archive nor one compressed with gzip.
    Format,
    /// Its bytes contradict themselves: checksums, numbers, padding.
    Corrupt,
    /// It ends before its end marker.
    Cut,
    /// It has entries of a kind that is not taken, such as sparse files and parts of several volumes.
    Unsupported,
    /// A path begins at the root.
    AbsolutePath,
    /// A path has a component `..`.
    ParentPath,
    /// A path is not one that a workspace may have: too long, an empty component, a name of Glovebox's own.
    BadName,
    /// A path has too many components.
    TooDeep,
    /// A path leads through a file or a link.
    BeneathFile,
    /// Two entries have one path.
    Duplicate,
    /// A device, FIFO or socket.
    SpecialFile,
    /// A hard link to anything but a file that came before it.
    HardLink,
    /// A symbolic link that leads out of the tree, or in a circle.
    LinkLeadsOut,
    /// Something in a repository's own directory, or a link into one.
    Git,
    /// More entries than are taken.
    TooManyEntries,
    /// More bytes than are taken.
    TooLarge,
}

impl ArchiveProblem {
    /// All of them.
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

    /// Stable word for programs.
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

    /// What is wrong, after "the archive" or the path.
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

    /// What to do about it.
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

/// Why an archive was not unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveError {
    /// It breaks a rule.
    Refused {
        /// Which.
        problem: ArchiveProblem,
        /// The entry that does, if it is one.
        path: Option<String>,
    },
    /// Its bytes do not come, or there is no place for what is in it.
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

    /// What reading the archive failed with.
    pub(super) fn reading(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::whole(ArchiveProblem::Cut),
            // The decoder's words for bytes that are not what they should be.
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

    /// The failure as data.
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
