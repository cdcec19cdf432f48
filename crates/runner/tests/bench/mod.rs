//! A runner with a state directory of its own, for the tests of this folder.

#![allow(dead_code, reason = "every test file uses another part of it")]

use glovebox_runner::{NodeView, RunnerConfig, ToolRunner};
use glovebox_sandbox::{Registry, RegistryConfig};
use std::sync::Arc;
use tempfile::TempDir;

pub(crate) struct Bench {
    pub(crate) runner: ToolRunner,
    _state: TempDir,
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
            _state: state,
        }
    }
}
