//! Flags on changes that a reviewer should check, such as files that the host executes or
//! evaluates.
//!
//! Files are recognized by name, from the list in [`super::executes`]. Names are compared as on
//! file systems that fold them.

use super::executes::PROGRAMS;
use super::git_dirs::plain_name;
use crate::{Change, ChangeKind, Flag, Node, RelPath};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Patterns prepared for lookup, with their reasons.
#[derive(Default)]
struct FlagList {
    files: HashMap<&'static str, &'static str>,
    directories: HashMap<&'static str, &'static str>,
    /// Beginning and end of the name, and reason.
    patterns: Vec<(&'static str, &'static str, &'static str)>,
}

static KNOWN: LazyLock<FlagList> = LazyLock::new(|| {
    let mut known = FlagList::default();
    for program in PROGRAMS {
        for pattern in program.patterns.split_whitespace() {
            if let Some(directory) = pattern.strip_suffix('/') {
                known.directories.entry(directory).or_insert(program.reason);
            } else if let Some((begin, end)) = pattern.split_once('*') {
                known.patterns.push((begin, end, program.reason));
            } else {
                known.files.entry(pattern).or_insert(program.reason);
            }
        }
    }
    known
});

/// Adds flags to those that the collection set on a change.
pub(super) fn add(change: &mut Change) {
    let mut flags = std::mem::take(&mut change.flags);
    if executes(&change.path) && change.to().is_some_and(|to| *to != Node::Dir) {
        flags.push(Flag::Executes);
    }
    if made_executable(&change.kind) {
        flags.push(Flag::MadeExecutable);
    }
    change.flags = flags;
}

/// Returns true if the host executes or evaluates a file of that name.
pub(super) fn executes(path: &RelPath) -> bool {
    why_executed(path).is_some()
}

/// Returns what the host does with a file of that name, in a few words; `None` if it neither
/// executes nor evaluates it.
pub fn why_executed(path: &RelPath) -> Option<&'static str> {
    let known = &*KNOWN;
    let name = plain_name(path.name());
    let by_pattern = || {
        let fits = |(begin, end, _): &&(&str, &str, _)| {
            name.len() >= begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end)
        };
        known.patterns.iter().find(fits).map(|(_, _, why)| *why)
    };
    let by_directory = || {
        path.components()
            .find_map(|part| known.directories.get(plain_name(part).as_str()).copied())
    };
    let by_name = known.files.get(name.as_str()).copied();
    by_name.or_else(by_directory).or_else(by_pattern)
}

fn made_executable(kind: &ChangeKind) -> bool {
    let is_executable = |node: &Node| {
        matches!(
            node,
            Node::File {
                is_executable: true,
                ..
            }
        )
    };
    match kind {
        ChangeKind::Added { to } => is_executable(to),
        ChangeKind::Modified { from, to } | ChangeKind::Renamed { from, to, .. } => {
            is_executable(to) && !is_executable(from)
        }
        ChangeKind::Deleted { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_on_the_host_is_known_by_name() {
        for name in [
            ".envrc",
            "sub/.envrc",
            ".vscode/tasks.json",
            ".idea/workspace.xml",
            ".github/workflows/ci.yml",
            ".husky/pre-commit",
            "Makefile",
            "makefile.am",
            "build.rs",
            "crates/x/build.rs",
            "package.json",
            ".cargo/config.toml",
            ".bashrc",
            "CLAUDE.md",
            "docs/AGENTS.md",
            ".mcp.json",
            ".claude/settings.json",
            ".cursor/rules/x",
            ".gitattributes",
            ".gitmodules",
            ".devcontainer/devcontainer.json",
            "vite.config.ts",
            "glovebox.toml",
            ".VSCode/tasks.json",
            "Cargo.toml",
            ".pylintrc",
            ".prettierrc.js",
            ".babelrc.js",
            "SConstruct",
            "BUILD",
            "sub/WORKSPACE",
            "app/build.gradle",
            "cmake/find.cmake",
            "CMakePresets.json",
            ".lefthook.yml",
            "Brewfile",
            ".dir-locals.el",
            ".nvim.lua",
            "taskfile.dist.yml",
            ".hg/hgrc",
            "a/.env.local",
            "site.service",
            "default.nix",
            "MA\u{212a}EFILE",
            "package.json.",
        ] {
            assert!(executes(&RelPath::new(name).unwrap()), "{name}");
        }
        for name in [
            "src/main.rs",
            "README.md",
            "a.txt",
            "vscode/x",
            "packages.json",
            "buildings/readme",
            "src/workspace.rs",
            "config.toml",
            "environment.md",
            ".editorconfig",
            ".gitignore",
            "lib.js",
        ] {
            assert!(!executes(&RelPath::new(name).unwrap()), "{name}");
        }
    }

    #[test]
    fn the_list_is_in_order_and_says_what_runs_a_file() {
        let mut seen = std::collections::HashSet::new();
        for program in PROGRAMS {
            assert!(program.reason.len() < 80, "{}", program.reason);
            for pattern in program.patterns.split_whitespace() {
                assert!(seen.insert(pattern), "{pattern} is listed twice");
                assert_eq!(pattern, pattern.to_lowercase());
                assert!(pattern.matches('*').count() < 2, "{pattern}");
                assert!(
                    !(pattern.contains('*') && pattern.ends_with('/')),
                    "{pattern}"
                );
                let sample = pattern.trim_end_matches('/').replace('*', "x");
                let path = RelPath::new(format!("sub/{sample}")).unwrap();
                assert!(why_executed(&path).is_some(), "{pattern}");
            }
        }
        let why = |path: &str| why_executed(&RelPath::new(path).unwrap());
        assert_eq!(
            why("x/Cargo.toml"),
            Some("Cargo builds and runs what it says")
        );
        assert_eq!(why(".vscode/Makefile"), Some("make and its like run it"));
        assert_eq!(why("README.md"), None);
    }
}
