//! Where a test meets its sandboxes: a hermetic home, a registry of its own, and the shapes of
//! sandbox a probe is run in.

use glovebox_sandbox::{Backend, Registry, RegistryConfig, Sandbox, SandboxSpec};
use glovebox_spec::{Layers, ProcMode, RootFs};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use testkit::Home;

/// A home and a registry; everything is gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) home: Home,
    pub(crate) registry: Registry,
    root: OnceLock<tempfile::TempDir>,
}

/// What the isolation design calls a profile: one way to build a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The default: host programs, layers on disk.
    Host,
    /// Layers in memory.
    Memory,
    /// The whole host less its secrets.
    HostAll,
    /// A root file system of the test's own making.
    Dir,
    /// `/proc` with process directories only.
    Pids,
}

impl Shape {
    pub(crate) const ALL: [Self; 5] = [
        Self::Host,
        Self::Memory,
        Self::HostAll,
        Self::Dir,
        Self::Pids,
    ];
}

impl Arena {
    pub(crate) fn new() -> Self {
        let home = Home::new();
        let registry = Registry::open(RegistryConfig {
            state_dir: home.state(),
            max_sandboxes: 64,
            seed_maker: None,
        })
        .expect("a registry in a fresh directory");
        Self {
            home,
            registry,
            root: OnceLock::new(),
        }
    }

    /// The default sandbox over the project, without limits.
    pub(crate) fn spec(&self) -> SandboxSpec {
        let mut spec = SandboxSpec::new(Backend::NATIVE);
        spec.jail.workspace = Some(self.home.project());
        spec.jail.env = vec![
            (
                "PATH".to_owned(),
                "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".to_owned(),
            ),
            ("HOME".to_owned(), "/home/sandbox".to_owned()),
        ];
        spec
    }

    pub(crate) fn shaped(&self, shape: Shape) -> SandboxSpec {
        let mut spec = self.spec();
        match shape {
            Shape::Host => {}
            Shape::Memory => {
                spec.jail.layers = Layers::Memory;
                spec.jail.limits.disk_bytes = Some(64 << 20);
            }
            Shape::HostAll => spec.jail.rootfs = RootFs::HostAll,
            Shape::Dir => {
                spec.jail.rootfs = RootFs::Dir(self.root.get_or_init(own_root).path().to_owned());
            }
            Shape::Pids => spec.jail.proc = ProcMode::Pids,
        }
        spec
    }

    pub(crate) fn sandbox(&self) -> Sandbox {
        self.with(|_| {})
    }

    pub(crate) fn with(&self, adjust: impl FnOnce(&mut SandboxSpec)) -> Sandbox {
        let mut spec = self.spec();
        adjust(&mut spec);
        self.create(&spec)
    }

    pub(crate) fn create(&self, spec: &SandboxSpec) -> Sandbox {
        match self.registry.create(spec, None) {
            Ok(sandbox) => sandbox,
            Err(fault) => panic!("no sandbox ({:?}): {fault:?}", spec.jail.rootfs),
        }
    }

    /// Runs a probe in a fresh sandbox of every shape.
    pub(crate) fn in_every_shape(&self, probe: impl Fn(Shape, &Sandbox)) {
        for shape in Shape::ALL {
            if shape == Shape::Memory && !testkit::has_layers_in_memory() {
                continue;
            }
            let sandbox = self.create(&self.shaped(shape));
            probe(shape, &sandbox);
            sandbox.destroy().expect("a sandbox ends in order");
        }
    }
}

/// Whether one of a sandbox's limits is held by what begins with this, as its report says.
pub(crate) fn has_limit_by(sandbox: &Sandbox, mechanism: &str) -> bool {
    let report = sandbox.report().expect("a report");
    let mut limits = report.limits.iter();
    limits.any(|limit| limit.mechanism.starts_with(mechanism))
}

/// Programs of [`own_root`], each with what the dynamic linker wants.
const PROGRAMS: [&str; 15] = [
    "sh", "perl", "cat", "ls", "id", "mount", "umount", "sleep", "true", "dd", "ln", "rm", "mkdir",
    "cp", "chmod",
];

/// A root file system with a shell and an interpreter, which a test may spoil.
pub(crate) fn own_root() -> tempfile::TempDir {
    make_tiny_root().expect("a small root file system")
}

fn make_tiny_root() -> std::io::Result<tempfile::TempDir> {
    let root = tempfile::Builder::new()
        .prefix("glovebox-root-")
        .tempdir()?;
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755))?;
    for dir in [
        "bin",
        "usr/bin",
        "etc",
        "tmp",
        "proc",
        "dev",
        "home/sandbox",
    ] {
        fs::create_dir_all(root.path().join(dir))?;
    }
    fs::set_permissions(root.path().join("tmp"), fs::Permissions::from_mode(0o1777))?;
    fs::write(
        root.path().join("etc/passwd"),
        "sandbox:x:1000:1000::/:/bin/sh\n",
    )?;
    for name in PROGRAMS {
        let program = program(name)?;
        fs::copy(&program, root.path().join("bin").join(name))?;
        fs::copy(&program, root.path().join("usr/bin").join(name))?;
    }
    for library in libraries() {
        let relative = library.strip_prefix("/").map_err(std::io::Error::other)?;
        let to = root.path().join(relative);
        fs::create_dir_all(to.parent().unwrap_or(root.path()))?;
        fs::copy(library, to)?;
    }
    Ok(root)
}

fn program(name: &str) -> std::io::Result<PathBuf> {
    ["/usr/bin", "/bin"]
        .map(|dir| Path::new(dir).join(name))
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| std::io::Error::other(format!("the host has no {name}")))
}

/// Shared libraries of [`PROGRAMS`], as the dynamic linker of this machine finds them.
fn libraries() -> &'static BTreeSet<PathBuf> {
    static LIBRARIES: OnceLock<BTreeSet<PathBuf>> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let programs = PROGRAMS.iter().filter_map(|name| program(name).ok());
        testkit::libraries(programs)
    })
}

/// Held by tests that measure time or fill the machine, so that they do not disturb each other.
pub(crate) static ALONE: Mutex<()> = Mutex::new(());
