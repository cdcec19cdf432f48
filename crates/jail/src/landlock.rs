//! The second barrier: a Landlock ruleset, built once and applied to every command and to every
//! thread that accesses files on a command's behalf.
//!
//! The mounts already decide which paths can be reached. Landlock enforces the same in a part of
//! the kernel that shares no code with them. From paths as the *sandbox* sees them, which must
//! exist, it builds a descriptor that restricts threads, and returns the ABI version it was built
//! for.
//!
//! Invariants: every right that the running kernel can handle is handled. A kernel that reports an
//! ABI version but refuses one of its rights is an error, not a weaker barrier. Renames and links
//! across directories stay possible inside a writable tree. Signals are scoped only by the rules of
//! a whole sandbox without namespaces, never by those of one command, because one job must be able
//! to end another.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ::landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath,
    Ruleset as Builder, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::sys;

/// Paths that commands may access, as the calling process sees them. All other paths are denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Files and trees that may be read, listed and executed.
    pub read_exec: Vec<PathBuf>,
    /// Trees whose directories may be listed, and nothing else.
    pub list: Vec<PathBuf>,
    /// Files and trees that may also be changed in every way except making device nodes.
    pub read_write: Vec<PathBuf>,
    /// As `read_write`, but paths that do not exist are left out.
    pub read_write_if_there: Vec<PathBuf>,
    /// Device files and trees of them (`/dev`): read, write and `ioctl`, but no creation. Terminals
    /// need this from ABI 5 on.
    pub devices: Vec<PathBuf>,
    /// True to refuse connections to abstract Unix sockets made by a process outside the domain
    /// (ABI 6).
    pub scope_abstract_sockets: bool,
    /// True to refuse signals to processes outside the domain (ABI 6).
    pub scope_signals: bool,
    /// True to refuse every use of TCP (ABI 4).
    pub refuse_tcp: bool,
}

/// Error of building or applying a ruleset.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A path of the policy cannot be opened. It is an error, because a grant without effect would
    /// only show as an inexplicable failure of a command.
    #[error(
        "the Landlock policy names {path}, which cannot be opened: {source}; grant only paths that exist inside the sandbox"
    )]
    Path {
        /// The path of the policy.
        path: PathBuf,
        /// Error of opening it.
        source: std::io::Error,
    },
    /// The kernel refused a right that belongs to its ABI version.
    #[error("Landlock ABI {abi} refused the ruleset: {source}")]
    Refused {
        /// The version the kernel reported.
        abi: u32,
        /// Error of the kernel or its binding.
        source: Box<RulesetError>,
    },
    /// The thread was not restricted. `EPERM` means that `no_new_privs` is not set.
    #[error("Landlock did not restrict the thread: {0}")]
    Restrict(std::io::Error),
}

impl Error {
    pub(crate) fn unreadable(path: PathBuf, errno: Errno) -> Self {
        Self::Path {
            path,
            source: errno.into(),
        }
    }
}

/// A finished ruleset.
#[derive(Debug)]
pub struct BuiltRuleset {
    /// Descriptor that restricts threads (close-on-exec). `None` without Landlock.
    pub fd: Option<OwnedFd>,
    /// ABI version the rules were built for; 0 if the kernel has no Landlock.
    pub abi: u32,
}

/// Returns the ABI version of the running kernel; 0 if it has no Landlock or the boot parameters
/// leave it out.
pub fn abi_version() -> u32 {
    sys::landlock::abi_version()
}

/// Builder of rulesets; see [`Ruleset::build`].
#[derive(Debug)]
pub struct Ruleset;

impl Ruleset {
    /// Builds the ruleset for `policy` with everything that the running kernel supports.
    ///
    /// Without Landlock this succeeds with `fd: None`. The caller reports that; the mounts still
    /// apply.
    pub fn build(policy: &Policy) -> Result<BuiltRuleset, Error> {
        Self::build_for(CWD, ResolveFlags::empty(), policy, abi_version())
    }

    /// Does the same as [`Self::build`], with paths as a process whose root is `root` sees them.
    pub(crate) fn build_in(root: BorrowedFd<'_>, policy: &Policy) -> Result<BuiltRuleset, Error> {
        Self::build_for(root, ResolveFlags::IN_ROOT, policy, abi_version())
    }

    /// Builds a ruleset that contains no rule about files and refuses connections to abstract Unix
    /// sockets made by a process outside the domain. `None` if the kernel has no such rule.
    ///
    /// # Errors
    /// The kernel refuses a right that belongs to its ABI version.
    pub fn build_scope() -> Result<Option<OwnedFd>, Error> {
        let abi = abi_version();
        if abi < ABI::V6 as u32 {
            return Ok(None);
        }
        Builder::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .scope(Scope::AbstractUnixSocket)
            .and_then(Builder::create)
            .map(Into::into)
            .map_err(|source| Error::Refused {
                abi,
                source: Box::new(source),
            })
    }

    fn build_for(
        root: BorrowedFd<'_>,
        resolve: ResolveFlags,
        policy: &Policy,
        kernel_abi: u32,
    ) -> Result<BuiltRuleset, Error> {
        if kernel_abi == 0 {
            return Ok(BuiltRuleset { fd: None, abi: 0 });
        }
        let abi = ABI::from(i32::try_from(kernel_abi).unwrap_or(i32::MAX));
        // A kernel newer than the binding is used up to the version that the binding knows.
        let abi_used = abi as u32;
        let refused = |source: RulesetError| Error::Refused {
            abi: abi_used,
            source: Box::new(source),
        };

        let mut builder = Builder::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(abi))
            .map_err(refused)?;
        if policy.scope_abstract_sockets && abi >= ABI::V6 {
            builder = builder.scope(Scope::AbstractUnixSocket).map_err(refused)?;
        }
        if policy.scope_signals && abi >= ABI::V6 {
            builder = builder.scope(Scope::Signal).map_err(refused)?;
        }
        if policy.refuse_tcp && abi >= ABI::V4 {
            let tcp = AccessNet::BindTcp | AccessNet::ConnectTcp;
            builder = builder.handle_access(tcp).map_err(refused)?;
        }
        let mut ruleset = builder.create().map_err(refused)?;

        let grants = [
            (&policy.read_exec, reading(abi), true),
            (&policy.list, AccessFs::ReadDir.into(), true),
            (&policy.read_write, writing(abi), true),
            (&policy.read_write_if_there, writing(abi), false),
            (&policy.devices, device_use(abi), true),
        ];
        for (paths, rights, is_required) in grants {
            for path in paths {
                let file = match open_granted(root, resolve, path) {
                    Err(Errno::NOENT) if !is_required => continue,
                    opened => opened.map_err(|errno| Error::unreadable(path.clone(), errno))?,
                };
                ruleset = grant(ruleset, &file, path, rights, abi, &refused)?;
            }
        }
        Ok(BuiltRuleset {
            fd: ruleset.into(),
            abi: abi_used,
        })
    }
}

/// Restricts the calling thread permanently by the ruleset `fd`. Needs `no_new_privs`.
///
/// Threads and processes that it creates afterwards inherit the restriction; its siblings do not.
pub fn restrict_thread(fd: BorrowedFd<'_>) -> Result<(), Error> {
    match sys::landlock::restrict_self_raw(fd.as_raw_fd()) {
        0 => Ok(()),
        negative => Err(Error::Restrict(std::io::Error::from_raw_os_error(
            -negative,
        ))),
    }
}

fn reading(abi: ABI) -> BitFlags<AccessFs> {
    // Connecting to a socket file uses the program behind it. A process that may read the file may
    // use it.
    AccessFs::from_read(abi) | (AccessFs::from_all(abi) & AccessFs::ResolveUnix)
}

fn writing(abi: ABI) -> BitFlags<AccessFs> {
    // Writable trees give no right to make or use devices; `devices` does.
    AccessFs::from_all(abi) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev)
}

fn device_use(abi: ABI) -> BitFlags<AccessFs> {
    AccessFs::from_all(abi)
        & (AccessFs::ReadFile
            | AccessFs::WriteFile
            | AccessFs::ReadDir
            | AccessFs::Truncate
            | AccessFs::IoctlDev)
}

fn open_granted(
    root: BorrowedFd<'_>,
    resolve: ResolveFlags,
    path: &Path,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)
}

/// Adds one rule. A file gets only the rights that apply to files.
fn grant(
    ruleset: RulesetCreated,
    file: &OwnedFd,
    path: &Path,
    rights: BitFlags<AccessFs>,
    abi: ABI,
    refused: &impl Fn(RulesetError) -> Error,
) -> Result<RulesetCreated, Error> {
    let stat =
        rustix::fs::fstat(file).map_err(|errno| Error::unreadable(path.to_path_buf(), errno))?;
    let rights = if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        rights
    } else {
        rights & AccessFs::from_file(abi)
    };
    ruleset
        .add_rule(PathBeneath::new(file.as_fd(), rights))
        .map_err(refused)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::os::fd::OwnedFd;

    use super::*;

    /// Runs `work` on a thread restricted by `policy`; the rest of the test process stays
    /// unrestricted.
    fn restricted<T: Send + 'static>(
        policy: &Policy,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let Some(fd) = Ruleset::build(policy).unwrap().fd else {
            testkit::skip_loudly(module_path!(), "the kernel has no Landlock");
            return None;
        };
        let thread = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            restrict_thread(fd.as_fd()).unwrap();
            work()
        });
        Some(thread.join().unwrap())
    }

    fn kind<T>(result: std::io::Result<T>) -> Option<ErrorKind> {
        result.err().map(|error| error.kind())
    }

    #[test]
    fn trees_are_read_only_writable_or_out_of_reach() {
        let dir = tempfile::tempdir().unwrap();
        let [ro, rw, hidden] = ["ro", "rw", "hidden"].map(|name| dir.path().join(name));
        for tree in [&ro, &rw, &hidden] {
            fs::create_dir_all(tree.join("sub")).unwrap();
            fs::write(tree.join("f"), "x").unwrap();
        }
        let single = dir.path().join("single");
        fs::write(&single, "x").unwrap();
        let policy = Policy {
            read_exec: vec![ro.clone(), single.clone()],
            read_write: vec![rw.clone()],
            ..Policy::default()
        };
        restricted(&policy, move || {
            assert_eq!(fs::read(ro.join("f")).unwrap(), b"x");
            assert_eq!(fs::read(&single).unwrap(), b"x");
            assert_eq!(fs::read_dir(&ro).unwrap().count(), 2);
            let denied = Some(ErrorKind::PermissionDenied);
            assert_eq!(kind(fs::write(ro.join("f"), "y")), denied);
            assert_eq!(kind(fs::write(&single, "y")), denied);
            assert_eq!(kind(fs::write(ro.join("new"), "y")), denied);
            assert_eq!(kind(fs::remove_file(ro.join("f"))), denied);
            assert_eq!(kind(fs::rename(ro.join("f"), rw.join("stolen"))), denied);
            assert_eq!(kind(fs::read(hidden.join("f"))), denied);
            assert_eq!(kind(fs::read_dir(&hidden)), denied);
            assert_eq!(kind(fs::read("/proc/self/status")), denied);

            fs::write(rw.join("f"), "longer").unwrap();
            fs::File::options()
                .write(true)
                .open(rw.join("f"))
                .unwrap()
                .set_len(0)
                .unwrap();
            fs::create_dir(rw.join("made")).unwrap();
            std::os::unix::fs::symlink("f", rw.join("link")).unwrap();
            std::os::unix::net::UnixListener::bind(rw.join("socket")).unwrap();
            // Renames and links across directories, as package managers and git do.
            fs::rename(rw.join("f"), rw.join("sub/f")).unwrap();
            fs::hard_link(rw.join("sub/f"), rw.join("f")).unwrap();
            fs::remove_file(rw.join("sub/f")).unwrap();
            fs::remove_dir(rw.join("made")).unwrap();
        });
    }

    #[test]
    fn devices_stay_usable_but_nothing_is_made_beside_them() {
        let policy = Policy {
            devices: vec!["/dev".into()],
            ..Policy::default()
        };
        restricted(&policy, || {
            fs::write("/dev/null", "x").unwrap();
            assert_eq!(
                kind(fs::write("/dev/new", "x")),
                Some(ErrorKind::PermissionDenied)
            );
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            let terminal: OwnedFd = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR).unwrap();
            rustix::pty::grantpt(&terminal).unwrap();
            rustix::pty::unlockpt(&terminal).unwrap();
            let name = rustix::pty::ptsname(&terminal, Vec::new()).unwrap();
            let end = rustix::fs::open(name, flags, Mode::empty()).unwrap();
            assert!(rustix::termios::isatty(&end), "isatty is an ioctl");
        });
    }

    #[test]
    fn abstract_sockets_of_others_are_cut_off_and_signals_are_not() {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
        if abi_version() < 6 {
            testkit::skip!("needs Landlock ABI 6");
        }
        let address =
            SocketAddr::from_abstract_name(format!("glovebox-test-{}", std::process::id()))
                .unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        let mut other = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let pid = rustix::process::Pid::from_child(&other);
        for scope_abstract_sockets in [false, true] {
            let policy = Policy {
                scope_abstract_sockets,
                ..Policy::default()
            };
            let address = address.clone();
            let refused = restricted(&policy, move || {
                rustix::process::test_kill_process(pid).unwrap();
                kind(UnixStream::connect_addr(&address))
            });
            let expected = scope_abstract_sockets.then_some(ErrorKind::PermissionDenied);
            assert_eq!(refused, Some(expected));
        }
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn every_older_abi_builds_what_it_can() {
        let newest = abi_version();
        let policy = Policy {
            read_exec: vec!["/usr".into()],
            list: vec!["/var".into()],
            read_write: vec!["/tmp".into()],
            read_write_if_there: vec!["/var/tmp".into(), "/no/such/place".into()],
            devices: vec!["/dev".into(), "/dev/null".into()],
            scope_abstract_sockets: true,
            scope_signals: true,
            refuse_tcp: true,
        };
        for abi in 1..=newest {
            let built = Ruleset::build_for(CWD, ResolveFlags::empty(), &policy, abi).unwrap();
            assert!(built.fd.is_some());
            assert_eq!(built.abi, abi.min(9));
        }
        let none = Ruleset::build_for(CWD, ResolveFlags::empty(), &policy, 0).unwrap();
        assert!(none.fd.is_none() && none.abi == 0);
    }

    #[test]
    fn paths_are_those_of_the_root_that_is_given() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("place")).unwrap();
        std::os::unix::fs::symlink("/place", dir.path().join("link")).unwrap();
        let root = fs::File::open(dir.path()).unwrap();
        let build = |path: &str| {
            let policy = Policy {
                read_exec: vec![path.into()],
                ..Policy::default()
            };
            Ruleset::build_in(root.as_fd(), &policy)
        };
        if abi_version() > 0 {
            assert!(build("/place").is_ok() && build("/link").is_ok());
            // It exists on the host only.
            assert!(matches!(build("/usr"), Err(Error::Path { .. })));
        }
    }

    #[test]
    fn a_missing_path_is_named() {
        let policy = Policy {
            read_exec: vec!["/nonexistent/tree".into()],
            ..Policy::default()
        };
        if abi_version() > 0 {
            let error = Ruleset::build(&policy).unwrap_err();
            assert!(error.to_string().contains("/nonexistent/tree"), "{error}");
        }
    }

    #[test]
    fn a_descriptor_that_is_no_ruleset_is_refused() {
        let file = fs::File::open("/dev/null").unwrap();
        let result = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            restrict_thread(file.as_fd())
        });
        assert!(matches!(result.join().unwrap(), Err(Error::Restrict(_))));
    }
}
