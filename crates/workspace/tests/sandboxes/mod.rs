//! Sandboxes of every backend with a project beside them, for tests of copy mode, and one with
//! layers for comparison.

#![allow(
    dead_code,
    reason = "every test program takes what it needs from the same fixture"
)]

use glovebox_proto::Exec;
use glovebox_sandbox::{Backend, Registry, RegistryConfig, Sandbox, SandboxSpec};
use glovebox_spec::Layers;
use glovebox_workspace::collect::{LayerPaths, from_layers};
use glovebox_workspace::copy::{
    CopyInputs, Packing, PushOptions, PushRecords, PushTotals, SandboxRoot, collect, push,
};
use glovebox_workspace::{
    ChangeKind, CollectedChanges, Filter, Progress, Quota, RelPath, SyncError,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Changes that the common script makes to the common project.
pub(crate) const EXPECTED_LINES: [&str; 9] = [
    "D gone",
    "D gone/x",
    "A new",
    "A new/dir",
    "A new/dir/n",
    "A new/link",
    "M src/a",
    "R src/b -> src/c",
    "M tool",
];
pub(crate) const EXPECTED_REFUSALS: [&str; 3] = [".git Git", "evil LinkLeadsOut", "pipe Special"];

/// The changes, one per line, as `git status` would show them.
pub(crate) fn lines(collected: &CollectedChanges) -> Vec<String> {
    let line = |change: &glovebox_workspace::Change| {
        let path = &change.path;
        match &change.kind {
            ChangeKind::Added { .. } => format!("A {path}"),
            ChangeKind::Modified { .. } => format!("M {path}"),
            ChangeKind::Deleted { .. } => format!("D {path}"),
            ChangeKind::Renamed { source, .. } => format!("R {source} -> {path}"),
        }
    };
    collected.set.changes.iter().map(line).collect()
}

pub(crate) fn refusals(collected: &CollectedChanges) -> Vec<String> {
    let mut lines: Vec<String> = collected
        .set
        .refused
        .iter()
        .map(|refusal| {
            let path = String::from_utf8_lossy(&refusal.path);
            format!("{path} {:?}", refusal.reason)
        })
        .collect();
    lines.sort();
    lines
}

/// Every path below a directory, with its type and content.
pub(crate) fn tree(root: &Path) -> BTreeMap<String, String> {
    fn walk(root: &Path, dir: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap().as_os_str();
            let name = name.as_bytes().escape_ascii().to_string();
            let kind = entry.file_type().unwrap();
            let text = if kind.is_dir() {
                walk(root, &path, found);
                "dir".to_owned()
            } else if kind.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else {
                let mode = entry.metadata().unwrap().permissions().mode() & 0o111;
                let content = fs::read(&path).unwrap();
                format!("{} {mode:o}", content.escape_ascii())
            };
            found.insert(name, text);
        }
    }
    let mut found = BTreeMap::new();
    walk(root, root, &mut found);
    found
}

fn environment(temp: &Path) -> Vec<(String, String)> {
    [
        (
            "PATH",
            "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".to_owned(),
        ),
        ("HOME", temp.join("home").display().to_string()),
        ("XDG_CACHE_HOME", temp.join("cache").display().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

fn prepare() -> (tempfile::TempDir, Registry) {
    let temp = tempfile::tempdir().unwrap();
    for dir in ["project", "inside", "spool", "home", "cache"] {
        fs::create_dir(temp.path().join(dir)).unwrap();
    }
    let config = RegistryConfig {
        state_dir: temp.path().join("state"),
        max_sandboxes: 8,
        seed_maker: Some(glovebox_workspace::SEED_MAKER),
    };
    let registry = Registry::open(config).unwrap();
    (temp, registry)
}

/// A project, and a sandbox to which it is copied.
pub(crate) struct Copy {
    pub(crate) sandbox: Sandbox,
    _registry: Registry,
    temp: tempfile::TempDir,
    root: Vec<u8>,
    hidden: Vec<PathBuf>,
    pub(crate) packing: Packing,
    pub(crate) quota: Quota,
    pub(crate) filter: Filter,
}

impl Copy {
    pub(crate) fn host() -> Self {
        Self::with(Backend::HOST, Packing::Stored).unwrap()
    }

    fn with(backend: Backend, packing: Packing) -> Result<Self, String> {
        let (temp, registry) = prepare();
        let mut spec = SandboxSpec::new(backend);
        spec.jail.env = environment(temp.path());
        if spec.backend == Backend::COMMAND {
            spec.set_option("carrier", ["sh"]);
        }
        let mut root = b".".to_vec();
        if spec.backend == Backend::NATIVE {
            spec.jail.layers = Layers::Memory;
            root = b"/workspace".to_vec();
        } else {
            spec.cwd = Some(temp.path().join("inside"));
        }
        let sandbox = registry
            .create(&spec, None)
            .map_err(|fault| fault.to_string())?;
        Ok(Self {
            sandbox,
            _registry: registry,
            temp,
            root,
            hidden: Vec::new(),
            packing,
            quota: Quota::default(),
            filter: Filter::default(),
        })
    }

    /// Uses another directory of the sandbox.
    pub(crate) fn at(mut self, root: &Path) -> Self {
        self.root = root.as_os_str().as_bytes().to_vec();
        self
    }

    pub(crate) fn project_dir(&self) -> PathBuf {
        self.temp.path().join("project")
    }

    pub(crate) fn inside_dir(&self) -> PathBuf {
        self.temp.path().join("inside")
    }

    pub(crate) fn spool_dir(&self) -> PathBuf {
        self.temp.path().join("spool")
    }

    pub(crate) fn manifest(&self) -> PathBuf {
        self.temp.path().join("manifest")
    }

    pub(crate) fn project(&self, path: &str, text: &str) {
        write(&self.project_dir().join(path), text.as_bytes());
    }

    pub(crate) fn project_bytes(&self, name: &[u8], content: &[u8]) {
        let name = OsStr::from_bytes(name);
        write(&self.project_dir().join(name), content);
    }

    pub(crate) fn inside(&self, path: &str, text: &str) {
        write(&self.inside_dir().join(path), text.as_bytes());
    }

    pub(crate) fn fifo(path: &Path) {
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
    }

    pub(crate) fn hide(&mut self, paths: &[&str]) {
        self.hidden = paths.iter().map(PathBuf::from).collect();
    }

    /// Makes everything in the project a day old, so that signatures are proof of unchanged
    /// content.
    pub(crate) fn age_project(&self) {
        fn walk(dir: &Path, when: SystemTime) {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    walk(&entry.path(), when);
                } else if kind.is_file() {
                    let file = fs::File::options().append(true).open(entry.path()).unwrap();
                    file.set_modified(when).unwrap();
                }
            }
        }
        let day = Duration::from_hours(24);
        walk(&self.project_dir(), SystemTime::now() - day);
    }

    /// Empties the project and the sandbox's directory.
    pub(crate) fn reset(&self) {
        for dir in [self.project_dir(), self.inside_dir()] {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    fs::remove_dir_all(entry.path()).unwrap();
                } else {
                    fs::remove_file(entry.path()).unwrap();
                }
            }
        }
        let _ = fs::remove_file(self.manifest());
    }

    pub(crate) fn guest_pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_raw(self.sandbox.facts().unwrap().pid).unwrap()
    }

    pub(crate) fn run(&self, script: &str) {
        let output = self.sandbox.exec(Exec::new(["sh", "-ec", script])).unwrap();
        assert_eq!(
            output.report.exit,
            glovebox_proto::Exit::Code(0),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn place(&self) -> SandboxRoot<'_> {
        SandboxRoot {
            sandbox: &self.sandbox,
            root: &self.root,
            packing: self.packing,
        }
    }

    pub(crate) fn push_watched(
        &self,
        options: PushOptions,
        watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<PushTotals, SyncError> {
        let is_hidden =
            |path: &RelPath, _: bool| self.hidden.iter().any(|hidden| hidden == path.as_path());
        let recorded = PushRecords {
            manifest: &self.manifest(),
            index: &self.temp.path().join("index"),
            spool_dir: &self.spool_dir(),
        };
        push(
            &self.place(),
            &self.project_dir(),
            &is_hidden,
            &recorded,
            options,
            watch,
        )
    }

    pub(crate) fn push_with(&self, options: PushOptions) -> PushTotals {
        self.push_watched(options, &mut |_| ControlFlow::Continue(()))
            .unwrap()
    }

    pub(crate) fn push(&self) -> PushTotals {
        self.push_with(PushOptions::default())
    }

    pub(crate) fn try_collect(&self) -> Result<CollectedChanges, SyncError> {
        let source = CopyInputs {
            manifest: Some(&self.manifest()),
            project: Some(&self.project_dir()),
            git_dirs: &[],
            hidden: &self.hidden,
            spool_dir: &self.spool_dir(),
        };
        collect(
            &self.place(),
            &source,
            &self.filter,
            &self.quota,
            &mut |_| ControlFlow::Continue(()),
        )
    }

    pub(crate) fn collect(&self) -> CollectedChanges {
        self.try_collect().unwrap()
    }
}

fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// A copy for each available backend.
pub(crate) fn all() -> Vec<(&'static str, Copy)> {
    let mut found = vec![
        ("host", Copy::host()),
        (
            "command",
            Copy::with(Backend::COMMAND, Packing::Zstd).unwrap(),
        ),
    ];
    // Callers see from the list that one is missing.
    if let Ok(native) = Copy::with(Backend::NATIVE, Packing::Stored) {
        found.push(("native, layers in memory", native));
    }
    found
}

/// A native sandbox whose workspace is an overlay over the project.
pub(crate) struct Overlay {
    sandbox: Sandbox,
    _registry: Registry,
    temp: tempfile::TempDir,
}

impl Overlay {
    pub(crate) fn new(fill: impl FnOnce(&Path)) -> Option<Self> {
        let (temp, registry) = prepare();
        let project = temp.path().join("project");
        fill(&project);
        let mut spec = SandboxSpec::new(Backend::NATIVE);
        spec.jail.env = environment(temp.path());
        spec.jail.workspace = Some(project);
        let sandbox = registry.create(&spec, None).ok()?;
        Some(Self {
            sandbox,
            _registry: registry,
            temp,
        })
    }

    pub(crate) fn run_and_collect(&self, script: &str) -> CollectedChanges {
        let output = self.sandbox.exec(Exec::new(["sh", "-ec", script])).unwrap();
        assert_eq!(output.report.exit, glovebox_proto::Exit::Code(0));
        let layers = self.sandbox.workspace_layers().unwrap();
        let source = LayerPaths {
            project: layers.project.as_deref(),
            layers: &layers.layers,
            hidden: &layers.hidden,
            base: Some(&layers.base),
        };
        from_layers(&source, &Filter::default(), &Quota::default(), &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap()
    }
}
