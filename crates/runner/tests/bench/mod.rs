//! A runner with a state directory of its own, for the tests of this folder.

#![allow(dead_code, reason = "every test file uses another part of it")]

use glovebox_runner::{
    CallFailure, CallLimits, CallReport, Engine, NodeView, RunnerConfig, ToolRequest, ToolRunner,
};
use glovebox_sandbox::{Registry, RegistryConfig};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use tempfile::TempDir;

/// What tools are told beside their input.
static CONTEXT: LazyLock<Value> = LazyLock::new(|| json!({ "sessionId": "s1" }));

pub(crate) struct Bench {
    pub(crate) runner: ToolRunner,
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
        };
        let registry = Arc::new(Registry::open(registry).unwrap());
        Self {
            runner: ToolRunner::new(registry, config).unwrap(),
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
}

/// Processes that this test has started and that are left, by a word of their command line.
pub(crate) fn processes(word: &str) -> usize {
    pids(word).len()
}

/// Their directories in /proc.
pub(crate) fn pids(word: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let dirs = entries.flatten().map(|entry| entry.path());
    dirs.filter(|dir| {
        let line = std::fs::read(dir.join("cmdline")).unwrap_or_default();
        let is_meant = String::from_utf8_lossy(&line).contains(word);
        is_meant && is_descendant(dir)
    })
    .collect()
}

/// Whether a process of /proc descends from this one.
fn is_descendant(dir: &std::path::Path) -> bool {
    let own = std::process::id().to_string();
    let mut dir = dir.to_owned();
    loop {
        let Ok(status) = std::fs::read_to_string(dir.join("status")) else {
            return false;
        };
        let parent = status
            .lines()
            .find_map(|line| line.strip_prefix("PPid:"))
            .map_or("0", str::trim);
        if parent == own {
            return true;
        }
        if parent == "0" {
            return false;
        }
        dir = std::path::Path::new("/proc").join(parent);
    }
}
