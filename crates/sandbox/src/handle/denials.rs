//! Detection of the walls that a command ran into, from the guest's observations and from facts
//! that only this side has.
//!
//! Inputs: the exit report of a job, the sandbox's spec and the end of the job's output. Result:
//! records, bounded and printable. Output is only a hint: it leads to a record only for a path that
//! the spec hides and for a disk limit that the kernel enforces. An address in the output is added
//! to an existing record about addresses.

use super::output_words::words;
use super::{addresses, not_shown, owners};
use crate::state::layout::{LAYERS, open_dir};
use crate::state::sandbox_dir::read_spec;
use crate::{Files, Sandbox, SandboxSpec};
use glovebox_jail::project_quota;
use glovebox_jail::stage0::own_network::RESOLVER_PORT;
use glovebox_proto::{
    Code, Denial, Exit, ExitReport, MAX_DENIALS, PortUse, Reply, Request, visible,
};
use glovebox_spec::{Isolation, Limits, Net, PROXY, RootFs, WORKSPACE};
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// Number of bytes at the end of the output to examine.
const TAIL_BYTES: u32 = 8 << 10;
/// Maximum number of hidden files to report for one command.
const MAX_HIDDEN: usize = 2;
/// Signal that ends a process whose file would exceed its size limit (signal(7)).
const SIGXFSZ: i32 = 25;
/// Text of EDQUOT in programs' messages (strerror(3)), in lower case.
const QUOTA_EXCEEDED: &[u8] = b"disk quota exceeded";
/// Room below which a disk limit counts as used up: a refused writer leaves the rest of a block,
/// and the file system needs some for itself.
const USED_UP_BYTES: u64 = 64 << 10;

impl Sandbox {
    /// Returns the walls of this sandbox that a command ran into, the most certain first. Limits
    /// and network are reported for any exit code, because a pipe or `|| true` hides the code of
    /// the program that failed. Paths are reported only for a command that failed.
    pub fn denials(&self, report: &ExitReport) -> Vec<Denial> {
        let has_failed = report.exit != Exit::Code(0) || report.timed_out;
        // `None` unless the kernel enforces a disk limit.
        let disk_left = disk_bytes_left(self.dir());
        let files_left = disk_files_left(self.dir());
        let seen = report.seen_denials();
        let left = report.killed.saturating_add(report.left_running);
        if !has_failed
            && seen.is_empty()
            && !(report.oom || report.fork_refused || left > 0)
            && disk_left.is_none_or(|left| left >= USED_UP_BYTES)
            && files_left != Some(0)
        {
            return Vec::new();
        }
        // A sandbox that is being removed has no spec. The guest's observations remain valid.
        let spec = read_spec(self.dir()).ok();
        let mut denials = reached_limits(report, spec.as_ref());
        let hides = has_failed
            && spec
                .as_ref()
                .is_some_and(|spec| !spec.jail.hidden.is_empty());
        let is_of_this_machine = has_failed && spec.as_ref().is_some_and(shows_this_machine);
        let seen = self.with_way_out(seen);
        let lacks_address = seen.iter().any(addresses::lacks_address);
        let tail = if hides || is_of_this_machine || disk_left.is_some() || lacks_address {
            self.output_tail(report).unwrap_or_default()
        } else {
            Vec::new()
        };
        if files_left == Some(0) {
            denials.push(Denial::Files);
        } else if disk_left.is_some_and(|left| is_disk_used_up(left, &tail)) {
            denials.push(Denial::Disk);
        }
        if lacks_address {
            let command = LazyCell::new(|| self.command_of(report).unwrap_or_default());
            let named = |denial| addresses::with_address(denial, &tail, || command.as_slice());
            denials.extend(seen.into_iter().map(named));
        } else {
            denials.extend(seen);
        }
        if let Some(spec) = spec.as_ref().filter(|_| hides) {
            denials.extend(named_hidden(&tail, &spec.jail));
        }
        if let Some(spec) = spec.filter(|_| is_of_this_machine) {
            denials.extend(owners::find(&tail, &spec.jail));
            // A path that cannot be examined counts as visible, so no denial is reported for it.
            denials.extend(not_shown::find(&tail, |path| {
                let found = self.stat(path.as_os_str().as_bytes(), false);
                !found.is_err_and(|fault| fault.code == Code::NotFound)
            }));
        }
        denials.truncate(MAX_DENIALS);
        denials
    }

    /// Names the egress proxy as the user of a port that no process inside listens on.
    fn with_way_out(&self, mut denials: Vec<Denial>) -> Vec<Denial> {
        let unknown = PortUse::Unknown;
        let is_unknown =
            |denial: &Denial| matches!(denial, Denial::PortTaken { by, .. } if *by == unknown);
        if !denials.iter().any(is_unknown) {
            return denials;
        }
        let Ok(spec) = read_spec(self.dir()) else {
            return denials;
        };
        for denial in &mut denials {
            if let Denial::PortTaken { port, by } = denial
                && *by == PortUse::Unknown
                && is_way_out(&spec, *port)
            {
                *by = PortUse::WayOut;
            }
        }
        denials
    }

    /// Returns the limits of the sandbox. `None` if it is being removed.
    pub fn limits(&self) -> Option<Limits> {
        Some(read_spec(self.dir()).ok()?.jail.limits)
    }

    /// Returns the command line of a job. `None` if the guest has forgotten the job.
    fn command_of(&self, report: &ExitReport) -> Option<Vec<u8>> {
        let jobs = self.jobs().ok()?;
        let job = jobs.into_iter().find(|info| info.job == report.job)?;
        let words: Vec<&[u8]> = job.argv.iter().map(|word| word.as_slice()).collect();
        Some(words.join(&b' '))
    }

    /// Returns the end of a job's output. `None` if the guest has forgotten the job.
    pub fn output_tail(&self, report: &ExitReport) -> Option<Vec<u8>> {
        let total = report.stdout_bytes.saturating_add(report.stderr_bytes);
        let request = Request::JobRead {
            job: report.job,
            offset: total.saturating_sub(TAIL_BYTES.into()),
            max_bytes: TAIL_BYTES,
            wait_ms: 0,
        };
        let Ok(Reply::Log { chunks, .. }) = self.call(request) else {
            return None;
        };
        let bytes = chunks.into_iter().flat_map(|chunk| chunk.bytes.into_vec());
        // TRUST: the guest may send more bytes than requested.
        Some(bytes.take(TAIL_BYTES as usize).collect())
    }
}

/// Returns true if a grant could make more of this machine visible in the sandbox.
fn shows_this_machine(spec: &SandboxSpec) -> bool {
    spec.backend.capabilities().files == Files::Layers
        && matches!(spec.jail.rootfs, RootFs::Host | RootFs::HostAll)
}

/// Returns true for a port of the resolver or of the egress proxy.
fn is_way_out(spec: &SandboxSpec, port: u16) -> bool {
    spec.jail.net.is_own() && port == RESOLVER_PORT
        || spec.jail.net == Net::Egress
            && (port == PROXY.port() || spec.egress.ports().contains(&port))
}

/// Returns the limits that acted on the command.
fn reached_limits(report: &ExitReport, spec: Option<&SandboxSpec>) -> Vec<Denial> {
    let mut reached = Vec::new();
    if report.oom {
        reached.push(Denial::Memory);
    }
    // Without a control group that counts refusals, as many processes as the limit allows are taken
    // as a sign that it was reached.
    let left = report.killed.saturating_add(report.left_running);
    let is_full = spec
        .and_then(|spec| spec.jail.limits.pids)
        .is_some_and(|pids| left >= pids);
    if report.fork_refused || is_full {
        reached.push(Denial::Processes);
    }
    // The process died of the signal, or its shell reports that.
    if matches!(report.exit, Exit::Signal(SIGXFSZ)) || report.exit == Exit::Code(128 + SIGXFSZ) {
        reached.push(Denial::FileSize);
    }
    reached
}

/// Returns the bytes that the sandbox may still write. `None` unless the kernel enforces its disk
/// limit and reports it.
fn disk_bytes_left(sandbox_dir: &Path) -> Option<u64> {
    let layers = open_dir(&sandbox_dir.join(LAYERS)).ok()?;
    project_quota::bytes_left(layers.as_fd())
}

/// Returns the number of files that the sandbox may still create. `None` as for
/// [`disk_bytes_left`].
fn disk_files_left(sandbox_dir: &Path) -> Option<u64> {
    let layers = open_dir(&sandbox_dir.join(LAYERS)).ok()?;
    project_quota::files_left(layers.as_fd())
}

/// Returns true if the disk limit was reached: it is used up, or the output says so. A command may
/// have removed its unfinished file since.
fn is_disk_used_up(bytes_left: u64, tail: &[u8]) -> bool {
    bytes_left < USED_UP_BYTES
        || tail
            .windows(QUOTA_EXCEEDED.len())
            .any(|words| words.eq_ignore_ascii_case(QUOTA_EXCEEDED))
}

/// Returns the hidden files of the project that a text names.
fn named_hidden(text: &[u8], spec: &Isolation) -> Vec<Denial> {
    let hidden: BTreeSet<&Path> = spec.hidden.iter().map(PathBuf::as_path).collect();
    let mut found: Vec<&Path> = Vec::new();
    for word in words(text) {
        let word = Path::new(OsStr::from_bytes(word));
        let places = [
            word.strip_prefix(WORKSPACE).ok().map(Path::to_owned),
            spec.workspace
                .as_deref()
                .and_then(|project| word.strip_prefix(project).ok())
                .map(Path::to_owned),
            word.is_relative().then(|| spec.start_dir.join(word)),
            word.is_relative().then(|| word.to_owned()),
        ];
        for place in places.into_iter().flatten() {
            let place: PathBuf = place
                .components()
                .filter(|part| matches!(part, Component::Normal(_)))
                .collect();
            // A path below a hidden directory is hidden as well.
            let above = place
                .ancestors()
                .filter(|path| !path.as_os_str().is_empty())
                .find_map(|path| hidden.get(path));
            if let Some(path) = above {
                if !found.contains(path) {
                    found.push(path);
                }
                break;
            }
        }
    }
    found
        .into_iter()
        .take(MAX_HIDDEN)
        .map(|path| {
            let path = visible::line(path.as_os_str().as_bytes());
            Denial::Hidden { path }.made_safe()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Isolation {
        Isolation {
            workspace: Some("/home/me/project".into()),
            hidden: vec![".env".into(), "keys".into(), "sub/.env".into()],
            start_dir: "sub".into(),
            ..Isolation::default()
        }
    }

    fn named(text: &str) -> Vec<String> {
        let denials = named_hidden(text.as_bytes(), &spec());
        let path = |denial| match denial {
            Denial::Hidden { path } => path,
            other => format!("{other:?}"),
        };
        denials.into_iter().map(path).collect()
    }

    #[test]
    fn a_disk_limit_is_met_where_little_is_left_or_the_command_says_so() {
        assert!(is_disk_used_up(4096, b""));
        assert!(!is_disk_used_up(1 << 20, b"cannot write: no such file"));
        let said = b"dd: error writing 'big': Disk quota exceeded\n";
        assert!(is_disk_used_up(1 << 20, said));
    }

    #[test]
    fn a_hidden_file_is_found_by_the_ways_programs_name_it() {
        for text in [
            "cat: /workspace/.env: No such file or directory",
            "Error: ENOENT: no such file or directory, open '/workspace/.env'",
            "open /home/me/project/.env: no such file",
            "cannot read \u{2018}/workspace/.env\u{2019}.",
        ] {
            assert_eq!(named(text), [".env"], "{text}");
        }
        assert_eq!(named("cat: .env: No such file"), ["sub/.env"]);
        assert_eq!(named("cat: keys/a.pem: No such file"), ["keys"]);
        for text in [
            "cat: .envrc: No such file",
            "cat: other/.env: No such file",
            "cat: /etc/.env: No such file",
            "monkeys keyset",
            "",
        ] {
            assert_eq!(named(text), [""; 0], "{text}");
        }
    }
}
