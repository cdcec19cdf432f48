//! Where everything happens: a directory of its own on disk, a registry in it, a workspace.

use anyhow::{Context as _, Result};
use glovebox_sandbox::{Backend, Registry, RegistryConfig, Sandbox, SandboxSpec};
use glovebox_spec::{Layers, Limits};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// More than any bench makes at once.
const MAX_SANDBOXES: u32 = 1200;

/// What every bench gets.
#[derive(Debug)]
pub(crate) struct World {
    /// Whether to be quick.
    pub(crate) is_quick: bool,
    /// All sandboxes made by library call.
    pub(crate) registry: Registry,
    /// Host directory that sandboxes work on.
    pub(crate) workspace: PathBuf,
    dir: tempfile::TempDir,
    glovebox: Option<PathBuf>,
}

impl World {
    /// Everything is made below `parent`, which decides the file system, and removed in the end.
    pub(crate) fn new(parent: &Path, is_quick: bool, glovebox: Option<PathBuf>) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("run-").tempdir_in(parent)?;
        let base = dir.path().canonicalize()?;
        let workspace = base.join("workspace");
        std::fs::create_dir(&workspace)?;
        let registry = Registry::open(RegistryConfig {
            state_dir: base.join("state"),
            max_sandboxes: MAX_SANDBOXES,
            seed_maker: Some(glovebox_workspace::SEED_MAKER),
        })?;
        let beside = std::env::current_exe()
            .ok()
            .and_then(|exe| Some(exe.parent()?.join("glovebox")));
        let glovebox = glovebox
            .or_else(|| std::env::var_os("GLOVEBOX_TEST_BIN").map(PathBuf::from))
            .or(beside)
            .and_then(|path| path.canonicalize().ok());
        Ok(Self {
            is_quick,
            registry,
            workspace,
            dir,
            glovebox,
        })
    }

    /// A directory for a bench's own files, on the same file system.
    pub(crate) fn scratch(&self, name: &str) -> Result<PathBuf> {
        let path = self.dir.path().canonicalize()?.join(name);
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// `full`, or a part of it when quick.
    pub(crate) fn rounds(&self, full: usize) -> usize {
        if self.is_quick {
            (full / 8).max(5)
        } else {
            full
        }
    }

    /// The longest a race may take.
    pub(crate) fn budget(&self, full_seconds: u64) -> Duration {
        Duration::from_millis(full_seconds * if self.is_quick { 150 } else { 1000 })
    }

    /// What `glovebox run` asks for when nothing is said.
    pub(crate) fn spec(&self) -> SandboxSpec {
        let mut spec = self.unlimited();
        spec.jail.limits = Limits {
            memory_bytes: Some(512 << 20),
            cpu_millis: Some(1000),
            pids: Some(1024),
            disk_bytes: Some(1 << 30),
            ..Limits::default()
        };
        spec
    }

    /// The same without limits.
    pub(crate) fn unlimited(&self) -> SandboxSpec {
        let mut spec = SandboxSpec::new(Backend::NATIVE);
        spec.jail.workspace = Some(self.workspace.clone());
        spec.jail.env = vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())];
        spec
    }

    /// The same with layers elsewhere.
    pub(crate) fn with_layers(mut spec: SandboxSpec, layers: Layers) -> SandboxSpec {
        spec.jail.layers = layers;
        spec
    }

    /// The guest as an ordinary process of this machine.
    pub(crate) fn local(&self) -> SandboxSpec {
        let mut spec = self.unlimited();
        spec.backend = Backend::HOST;
        spec.cwd = Some(self.workspace.clone());
        spec
    }

    /// A sandbox of this process.
    pub(crate) fn sandbox(&self, spec: &SandboxSpec) -> Result<Sandbox> {
        Ok(self.registry.create(spec, None)?)
    }

    /// The `glovebox` command, with a home and a state directory of its own.
    pub(crate) fn glovebox(&self) -> Result<Command> {
        let program = self.glovebox.as_deref().context(
            "no `glovebox` program: build it (`cargo build --release`) or name it with --glovebox",
        )?;
        let mut command = crate::rival::quiet(program);
        let home = self.scratch("home")?;
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &home)
            .env("GLOVEBOX_STATE", self.cli_state()?)
            .env("GLOVEBOX_MAX_SANDBOXES", MAX_SANDBOXES.to_string())
            .current_dir(&self.workspace);
        Ok(command)
    }

    /// State directory of the `glovebox` command.
    pub(crate) fn cli_state(&self) -> Result<PathBuf> {
        let path = self.scratch("cli-state")?;
        // Glovebox refuses a state directory that others may look into.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
        Ok(path)
    }
}
