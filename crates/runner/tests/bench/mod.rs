//! A runner with a state directory of its own, for the tests of this folder.

#![allow(dead_code, reason = "every test file uses another part of it")]

use glovebox_js::tool_call::CallLimits;
use glovebox_runner::{
    CallFailure, CallReport, Engine, NodeView, RunnerConfig, ToolRequest, ToolRunner,
};
use glovebox_sandbox::{Registry, RegistryConfig};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use tempfile::TempDir;

/// What tools are told beside their input.
static CONTEXT: LazyLock<Value> = LazyLock::new(|| json!({ "sessionId": "s1" }));

pub(crate) struct Bench {
    pub(crate) runner: ToolRunner,
    registry: Arc<Registry>,
    state: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with_node(NodeView::default())
    }

    pub(crate) fn with_node(node: NodeView) -> Self {
        Self::with(RunnerConfig {
            node,
            ..RunnerConfig::default()
        })
    }

    pub(crate) fn with(config: RunnerConfig) -> Self {
        let state = TempDir::new().unwrap();
        let registry = RegistryConfig {
            state_dir: state.path().join("state"),
            max_sandboxes: 64,
            seed_maker: None,
        };
        let registry = Arc::new(Registry::open(registry).unwrap());
        Self {
            runner: ToolRunner::new(registry.clone(), config).unwrap(),
            registry,
            state,
        }
    }

    /// A call of a tool in QuickJS, but for what `adjust` changes.
    pub(crate) fn call_with<'a>(
        &self,
        code: &'a str,
        input: &'a Value,
        adjust: impl FnOnce(&mut ToolRequest<'a>),
    ) -> Result<CallReport, CallFailure> {
        self.call_until(code, input, &AtomicBool::new(false), adjust)
    }

    /// [`Self::call_with`], given up when `cancel` is set.
    pub(crate) fn call_until<'a>(
        &self,
        code: &'a str,
        input: &'a Value,
        cancel: &AtomicBool,
        adjust: impl FnOnce(&mut ToolRequest<'a>),
    ) -> Result<CallReport, CallFailure> {
        let mut request = ToolRequest {
            tenant: "a",
            tool: "get",
            session: None,
            engine: Engine::Quickjs,
            code,
            input,
            context: &CONTEXT,
            call_id: "call-1",
            limits: CallLimits::default(),
            fixed: None,
        };
        adjust(&mut request);
        self.runner.call(&request, cancel)
    }

    /// All files and directories of its registry, sorted.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let (mut found, mut open) = (Vec::new(), vec![self.state.path().to_owned()]);
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    open.push(entry.path());
                }
                found.push(entry.path());
            }
        }
        found.sort();
        found
    }

    /// How many processes are in its sandboxes whose command line has a word.
    pub(crate) fn processes(&self, word: &str) -> usize {
        self.pids(word).len()
    }

    /// Their directories in /proc. Other tests of the program have processes with the same words at the same time.
    pub(crate) fn pids(&self, word: &str) -> Vec<PathBuf> {
        let inits = self.inits();
        let entries = std::fs::read_dir("/proc").unwrap();
        let dirs = entries.flatten().map(|entry| entry.path());
        dirs.filter(|dir| {
            let line = std::fs::read(dir.join("cmdline")).unwrap_or_default();
            let is_meant = String::from_utf8_lossy(&line).contains(word);
            is_meant && ancestors(dir).any(|pid| inits.contains(&pid))
        })
        .collect()
    }

    /// The first process of each of its sandboxes.
    fn inits(&self) -> Vec<String> {
        let entries = self.registry.list().unwrap().into_iter();
        entries
            .filter_map(|entry| {
                let status = std::fs::read(entry.dir.join("status.json")).ok()?;
                let status: Value = serde_json::from_slice(&status).unwrap();
                Some(status["process"]["pid"].as_u64()?.to_string())
            })
            .collect()
    }
}

/// The parent of a process of /proc, its parent, and so on.
fn ancestors(dir: &Path) -> impl Iterator<Item = String> {
    let parent = |dir: &Path| {
        let status = std::fs::read_to_string(dir.join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        Some(line.trim().to_owned()).filter(|pid| pid != "0")
    };
    std::iter::successors(parent(dir), move |pid| {
        parent(&Path::new("/proc").join(pid))
    })
}
