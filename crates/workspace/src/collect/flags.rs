//! What of a change a reviewer should look at: files that the host executes or obeys.
//!
//! By name, and deliberately wide: a flag costs a look, a missed one costs the machine. Names are
//! compared without regard to case, as some file systems do.

use crate::{Change, ChangeKind, Flag, Node, RelPath};

/// Directories whose content steers programs on the host, wherever they are.
const DIRECTORIES: &[&str] = &[
    ".aider",
    ".agents",
    ".buildkite",
    ".cargo",
    ".circleci",
    ".claude",
    ".codex",
    ".continue",
    ".cursor",
    ".devcontainer",
    ".direnv",
    ".fleet",
    ".forgejo",
    ".gemini",
    ".gitea",
    ".githooks",
    ".github",
    ".gitlab",
    ".husky",
    ".idea",
    ".mvn",
    ".nvim",
    ".roo",
    ".vscode",
    ".woodpecker",
    ".yarn",
    ".zed",
    "githooks",
];

/// Files that run on the host, or say what does, wherever they are.
const FILES: &[&str] = &[
    ".aider.conf.yml",
    ".appveyor.yml",
    ".bash_aliases",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".bazelrc",
    ".cirrus.yml",
    ".clinerules",
    ".cursorrules",
    ".drone.yml",
    ".envrc",
    ".eslintrc.cjs",
    ".eslintrc.js",
    ".exrc",
    ".gdbinit",
    ".gitattributes",
    ".gitconfig",
    ".gitlab-ci.yml",
    ".gitmodules",
    ".gloveboxignore",
    ".inputrc",
    ".kshrc",
    ".lldbinit",
    ".login",
    ".mcp.json",
    ".mise.toml",
    ".npmrc",
    ".nvimrc",
    ".pnp.cjs",
    ".pnpmfile.cjs",
    ".pre-commit-config.yaml",
    ".profile",
    ".pryrc",
    ".pypirc",
    ".rvmrc",
    ".tmux.conf",
    ".tool-versions",
    ".travis.yml",
    ".vimrc",
    ".windsurfrules",
    ".woodpecker.yml",
    ".xinitrc",
    ".xprofile",
    ".yarnrc",
    ".yarnrc.yml",
    ".zlogin",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    "agents.md",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "build.bazel",
    "build.gradle",
    "build.gradle.kts",
    "build.rs",
    "build.sbt",
    "build.xml",
    "build.zig",
    "bunfig.toml",
    "claude.local.md",
    "claude.md",
    "cmakelists.txt",
    "composer.json",
    "configure",
    "conftest.py",
    "deno.json",
    "docker-compose.yaml",
    "docker-compose.yml",
    "compose.yaml",
    "compose.yml",
    "dockerfile",
    "containerfile",
    "flake.nix",
    "gemfile",
    "gemini.md",
    "glovebox.toml",
    "gnumakefile",
    "gradlew",
    "gradlew.bat",
    "gruntfile.js",
    "gulpfile.js",
    "jenkinsfile",
    "justfile",
    "lefthook.yml",
    "makefile",
    "meson.build",
    "mise.toml",
    "module.bazel",
    "mvnw",
    "mvnw.cmd",
    "noxfile.py",
    "package.json",
    "podfile",
    "pom.xml",
    "procfile",
    "pyproject.toml",
    "rakefile",
    "rust-toolchain",
    "rust-toolchain.toml",
    "setup.cfg",
    "setup.py",
    "settings.gradle",
    "settings.gradle.kts",
    "shell.nix",
    "sitecustomize.py",
    "taskfile.yaml",
    "taskfile.yml",
    "tox.ini",
    "usercustomize.py",
    "vagrantfile",
    "workspace.bazel",
    "wscript",
];

/// Endings of such files.
const ENDINGS: &[&str] = &[
    ".bazel",
    ".bzl",
    ".code-workspace",
    ".desktop",
    ".gemspec",
    ".mk",
    ".pth",
    ".service",
];

/// Beginnings of such files: `vite.config.ts`, `jest.config.js` and their like run when their tool does.
const CONFIGS: &[&str] = &[
    ".config.js",
    ".config.cjs",
    ".config.mjs",
    ".config.ts",
    ".config.mts",
];

/// Adds flags to those that a change has from its collection.
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

/// Whether the host executes or obeys a file of that name.
pub(super) fn executes(path: &RelPath) -> bool {
    let name = path.name().to_ascii_lowercase();
    let mut above = path.components().rev().skip(1);
    above.any(|dir| is_one_of(&dir.to_ascii_lowercase(), DIRECTORIES))
        || is_one_of(&name, DIRECTORIES)
        || is_one_of(&name, FILES)
        || ENDINGS
            .iter()
            .chain(CONFIGS)
            .any(|ending| name.ends_with(ending.as_bytes()))
        || name.starts_with(b"makefile.")
        || name.starts_with(b"dockerfile.")
}

fn is_one_of(name: &[u8], list: &[&str]) -> bool {
    list.iter().any(|known| known.as_bytes() == name)
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
        ] {
            assert!(executes(&RelPath::new(name).unwrap()), "{name}");
        }
        for name in [
            "src/main.rs",
            "README.md",
            "a.txt",
            "vscode/x",
            "packages.json",
        ] {
            assert!(!executes(&RelPath::new(name).unwrap()), "{name}");
        }
    }
}
