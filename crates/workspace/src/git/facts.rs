//! Facts of a project's repository that conditions of the user's configuration depend on (`includeIf`).

use super::{common_dir, config, find_working_tree, small_file};
use std::path::{Path, PathBuf};

/// Longest `HEAD`, and longest configuration, in bytes.
const MAX_HEAD_BYTES: u64 = 8 << 10;
const MAX_CONFIG_BYTES: u64 = 256 << 10;

/// Facts of a project's repository that conditions in a configuration are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryFacts {
    /// Its git directory; without a repository, the place where one would be.
    pub git_dir: PathBuf,
    /// The reference that is checked out, such as `refs/heads/main`.
    pub branch: Option<String>,
    /// A configuration that holds the addresses of its remotes and nothing else.
    pub remotes: Vec<u8>,
}

/// Reads the facts of the repository that a project lies in.
pub fn repository_facts(project: &Path) -> RepositoryFacts {
    let Some(git_dir) = find_working_tree(project).map(|tree| tree.git_dir) else {
        return RepositoryFacts {
            git_dir: project.join(".git"),
            branch: None,
            remotes: Vec::new(),
        };
    };
    let head = small_file(&git_dir, "HEAD", MAX_HEAD_BYTES).unwrap_or_default();
    let branch = head
        .strip_prefix(b"ref:")
        .and_then(|name| std::str::from_utf8(name.trim_ascii()).ok())
        .map(str::to_owned);
    let common = common_dir(&git_dir).unwrap_or_else(|_| git_dir.clone());
    let text = small_file(&common, "config", MAX_CONFIG_BYTES).unwrap_or_default();
    let mut remotes = Vec::new();
    for (number, setting) in config::settings(&text).into_iter().enumerate() {
        let is_address = setting.section == "remote" && setting.key == "url";
        let is_plain = !setting
            .value
            .iter()
            .any(|byte| byte.is_ascii_control() || b"\"\\".contains(byte));
        if is_address && is_plain {
            remotes.extend_from_slice(format!("[remote \"{number}\"]\n\turl = \"").as_bytes());
            remotes.extend_from_slice(&setting.value);
            remotes.extend_from_slice(b"\"\n");
        }
    }
    RepositoryFacts {
        git_dir,
        branch,
        remotes,
    }
}
