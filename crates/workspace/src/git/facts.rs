//! Facts about a project's repository on which conditions of the user's configuration depend
//! (`includeIf`).

use super::{common_dir, config, find_working_tree, small_file};
use std::path::{Path, PathBuf};

/// Maximum size of `HEAD` and of a configuration, in bytes.
const MAX_HEAD_BYTES: u64 = 8 << 10;
const MAX_CONFIG_BYTES: u64 = 256 << 10;

/// Facts about a project's repository to which conditions in a configuration refer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryFacts {
    /// Git directory. Without a repository, the path at which it would be.
    pub git_dir: PathBuf,
    /// Reference that is checked out, such as `refs/heads/main`; `None` if `HEAD` is detached.
    pub branch: Option<String>,
    /// Text of a configuration with the addresses of the remotes only.
    pub remotes: Vec<u8>,
}

/// Reads the facts about the repository that contains a project.
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
