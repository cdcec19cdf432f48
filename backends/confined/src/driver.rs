//! Starts a guest for a spec.

use crate::report::{WEAKER, report};
use glovebox_jail::confine::{
    MIN_LANDLOCK_ABI, MONITOR_MODE, Setup, can_sign_connections, egress_channel,
};
use glovebox_jail::landlock::abi_version;
use glovebox_proto::{Code, Fault, Setting};
use glovebox_sandbox::backend::{
    Begun, CreateCx, Driver, GuestStream, spawn_guest, spawn_guest_with_proxy,
};
use glovebox_sandbox::{
    Backend, COPY_DIR, Capabilities, CheckpointStore, Declaration, Files, Place, ProjectChoice,
    SandboxSpec, StartCost, SubSandboxes, Walls, WorkspaceMode,
};
use glovebox_spec::Net;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

static DECLARATION: Declaration = Declaration {
    name: "confined",
    about: "walls without namespaces, for containers",
    settings: &["net", "allow", "deny", "toolchains"],
    required: &[],
    options: &[],
    credential: None,
    project_choice: ProjectChoice::Never,
    capabilities: Capabilities {
        place: Place::Here,
        walls: Walls::Ours,
        files: Files::Copied,
        has_own_dir: true,
        workspace_modes: &[WorkspaceMode::Copy, WorkspaceMode::None],
        // The files stay on this machine, in the sandbox's own directory.
        keeps_files: false,
        checkpoints: CheckpointStore::None,
        shares_machine: false,
        can_freeze: false,
        networks: &[Net::None, Net::Egress],
        can_nest: false,
        can_resume: false,
        sub_sandboxes: SubSandboxes::None,
        can_serve: false,
        start: StartCost::Processor,
        start_ms: 30_000,
    },
};

/// Directories of a sandbox, below its own: the copy of the project, home, and temporary files.
const TREES: [&str; 3] = [COPY_DIR, "home", "tmp"];

/// Driver of the backend `confined`.
#[derive(Debug)]
pub struct Confined;

impl Driver for Confined {
    fn backend(&self) -> Backend {
        Backend::declared(&DECLARATION)
    }

    fn check(&self, spec: &SandboxSpec) -> Result<(), Fault> {
        if spec.jail.net == Net::Host {
            let fault = unsupported(
                "the backend `confined` gives no sandbox the whole network: there would be no wall",
            );
            return Err(fault.remedy([
                Setting::Net.of("egress"),
                " or ".into(),
                Setting::Net.of("none"),
                " works here".into(),
            ]));
        }
        if spec.jail.net == Net::Egress && !can_sign_connections() {
            let fault = unsupported(
                "the backend `confined` has no network here: this kernel cannot sign TCP connections \
                 (CONFIG_TCP_MD5SIG)",
            );
            return Err(fault.remedy([Setting::Net.of("none"), " works here".into()]));
        }
        if !spec.secrets.is_empty() {
            let fault =
                unsupported("the backend `confined` does not fill in secrets on the way out yet");
            return Err(fault.remedy("leave secrets out"));
        }
        if spec.jail.is_nested {
            return Err(
                unsupported("the backend `confined` cannot let commands make namespaces")
                    .remedy("use the backend `native`"),
            );
        }
        let abi = abi_version();
        if abi < MIN_LANDLOCK_ABI {
            let found = match abi {
                0 => "this kernel (or this container's profile) has no Landlock".to_owned(),
                abi => format!("this kernel has Landlock ABI {abi}"),
            };
            return Err(Fault::refused(
                Code::BackendUnavailable,
                format!(
                    "the backend `confined` needs Landlock ABI {MIN_LANDLOCK_ABI}, and {found}"
                ),
            )
            .remedy("use Linux 6.12 or later"));
        }
        Ok(())
    }

    fn offer(&self) -> Option<&'static str> {
        Some(
            "works here for run, start, exec, agent, mcp and call: files, processes and network are walled off by \
             Landlock, a filter and a monitor; names of files and other processes' command lines can be seen, and \
             limits are not held. To choose it always: backend = [\"native\", \"confined\"] in \
             ~/.config/glovebox/glovebox.toml",
        )
    }

    fn explain(&self, _: &SandboxSpec) -> Result<String, Fault> {
        let mut text = format!(
            "a process of the caller without namespaces\n  1. give up all capabilities and the bounding set\n  \
             2. put Landlock (ABI {}) on it: own trees can be written, programs of the machine read, nothing else; \
             no signals and no tracing out of the sandbox\n  3. put the system call filter on it: a monitor outside \
             makes and connects sockets, to the sandbox's own servers and with `--net egress` to the proxy, and \
             changes metadata, in its own trees alone\n  4. try what must fail, then serve\nweaker than natively\n",
            abi_version()
        );
        for sentence in WEAKER {
            let _ = writeln!(text, "  {sentence}");
        }
        Ok(text)
    }

    fn summary(&self, spec: &SandboxSpec) -> Vec<String> {
        let net = match spec.jail.net {
            Net::Egress => "listed hosts",
            Net::None | Net::Host => "no network",
        };
        vec!["no namespaces".to_owned(), net.to_owned()]
    }

    fn create(&self, cx: &CreateCx<'_>, _: Begun) -> Result<GuestStream, Fault> {
        self.check(cx.spec)?;
        let trees = make_trees(cx.dir).map_err(|error| io_fault("make the directories", &error))?;
        let [tree, home, tmp] = &trees;
        let shown: Vec<PathBuf> = cx
            .spec
            .jail
            .grants
            .iter()
            .map(|grant| grant.source.clone())
            .collect();
        let setup = Setup::new(shown, &trees, tree)
            .map_err(|error| io_fault("resolve the directories", &error))?;
        let mut command = Command::new(cx.image.path());
        command
            .arg(MONITOR_MODE)
            .current_dir(tree)
            .env_clear()
            .envs(cx.spec.jail.env.iter().map(|(name, value)| (name, value)))
            .env("HOME", home)
            .env("GLOVEBOX_WORKSPACE", tree);
        for name in ["TMPDIR", "TMP", "TEMP"] {
            command.env(name, tmp);
        }
        let report = report(DECLARATION.name, cx);
        let mut monitor_end = None;
        let guest = if cx.spec.jail.net == Net::Egress {
            // There are no datagrams, so the C library has to ask for names on a stream.
            command.env("RES_OPTIONS", "use-vc");
            let (ours, theirs) =
                egress_channel().map_err(|errno| io_fault("make the way out", &errno.into()))?;
            monitor_end = Some(theirs);
            spawn_guest_with_proxy(command, cx, report, ours)?
        } else {
            spawn_guest(command, cx, report)?
        };
        let egress = monitor_end.as_ref().map(|end| end.as_fd());
        if let Err(error) = setup.send(guest.writer.as_fd(), egress) {
            let reason = guest
                .owner
                .exit_reason()
                .unwrap_or_else(|| error.to_string());
            return Err(Fault::failed(
                Code::Unavailable,
                format!("cannot start the sandbox: {reason}"),
            ));
        }
        Ok(guest)
    }
}

fn unsupported(message: &str) -> Fault {
    Fault::refused(Code::Unsupported, message)
}

fn io_fault(what: &str, error: &io::Error) -> Fault {
    Fault::failed(Code::Io, format!("cannot {what} of the sandbox: {error}"))
}

/// Creates the missing directories. Returns their canonical paths.
fn make_trees(dir: &Path) -> io::Result<[PathBuf; 3]> {
    let dir = fs::canonicalize(dir)?;
    let trees = TREES.map(|name| dir.join(name));
    for tree in &trees {
        match DirBuilder::new().mode(0o700).create(tree) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(trees)
}
