//! Configuration of a seed: the project's, without settings that have no meaning or may not apply
//! inside.

use crate::git::config::{self, Setting};

/// Settings at the end of each seed's configuration, where they override others. Inside, files have
/// another owner, inode and `ctime`; signing needs a key, which is not available inside.
const LAST: &str = "\
[core]
\tcheckStat = minimal
\ttrustCtime = false
\tuntrackedCache = false
\tfsmonitor = false
[commit]
\tgpgSign = false
[tag]
\tgpgSign = false
\tforceSignAnnotated = false
[push]
\tgpgSign = false
";

/// Facts on which the configuration of a seed depends.
pub(super) struct SeedSettings {
    /// True if `core.worktree` is kept.
    pub(super) keeps_worktree: bool,
    /// True for a linked working tree, whose repository may be bare.
    pub(super) is_linked: bool,
}

/// Returns the configuration for a seed. `own` is the configuration of one working tree.
pub(super) fn for_seed(text: &[u8], own: Option<&[u8]>, facts: &SeedSettings) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len() + LAST.len());
    // With the extension, git reads the file of the working tree after the shared one; without it,
    // git ignores that file.
    let has_own = Settings::parse(text).is_true("extensions", "worktreeconfig");
    for text in [Some(text), own.filter(|_| has_own)].into_iter().flatten() {
        let masked = config::without_credentials(text);
        let kept = config::retain(masked.as_deref().unwrap_or(text), |setting| {
            is_kept(setting, facts.keeps_worktree)
        });
        result.extend_from_slice(&kept);
        if !result.ends_with(b"\n") && !result.is_empty() {
            result.push(b'\n');
        }
    }
    result.extend_from_slice(LAST.as_bytes());
    if facts.is_linked {
        result.extend_from_slice(b"[core]\n\tbare = false\n");
    }
    result
}

fn is_kept(setting: &Setting, keeps_worktree: bool) -> bool {
    match (setting.section.as_str(), setting.key.as_str()) {
        ("credential", _) | ("extensions", "worktreeconfig") => false,
        ("core", "worktree") => keeps_worktree,
        ("core", "hookspath") => !setting.value.starts_with(b"/"),
        _ => true,
    }
}

/// Settings of a configuration, without includes.
#[derive(Debug)]
pub(super) struct Settings(Vec<Setting>);

impl Settings {
    pub(super) fn parse(text: &[u8]) -> Self {
        Self(config::settings(text))
    }

    fn last(&self, section: &str, subsection: Option<&[u8]>, key: &str) -> Option<&[u8]> {
        let found = self.0.iter().rfind(|setting| {
            setting.section == section
                && setting.subsection.as_deref() == subsection
                && setting.key == key
        });
        found.map(|setting| setting.value.as_slice())
    }

    fn is_true(&self, section: &str, key: &str) -> bool {
        let value = self.last(section, None, key).unwrap_or_default();
        let words: [&[u8]; 4] = [b"true", b"yes", b"on", b"1"];
        words.iter().any(|word| value.eq_ignore_ascii_case(word))
    }

    /// Returns the reference that a branch tracks, assuming the usual fetch refspec. `None` if it
    /// tracks none.
    pub(super) fn upstream(&self, branch: &[u8]) -> Option<Vec<u8>> {
        let remote = self.last("branch", Some(branch), "remote")?;
        let merged = self.last("branch", Some(branch), "merge")?;
        if remote == b"." {
            return Some(merged.to_vec());
        }
        let name = merged.strip_prefix(b"refs/heads/")?;
        Some([b"refs/remotes/", remote, b"/", name].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeded(text: &str, own: Option<&str>, is_linked: bool) -> String {
        let facts = SeedSettings {
            keeps_worktree: false,
            is_linked,
        };
        let text = for_seed(text.as_bytes(), own.map(str::as_bytes), &facts);
        let text = String::from_utf8(text).unwrap();
        text.replace(LAST, "LAST")
    }

    #[test]
    fn settings_without_a_place_inside_are_left_out() {
        let text = "[core] worktree = ../x\n\tbare = false\n\thooksPath = /home/me/hooks\n[credential \"h\"]\n\thelper = store\n";
        assert_eq!(
            seeded(text, None, false),
            "[core]\n\tbare = false\n[credential \"h\"]\nLAST"
        );
        let with = "[extensions]\n\tworktreeConfig = true\n[core]\n\tbare = true\n";
        assert_eq!(
            seeded(with, Some("[core]\n\tsparseCheckout = true\n"), true),
            "[extensions]\n[core]\n\tbare = true\n[core]\n\tsparseCheckout = true\nLAST[core]\n\tbare = false\n"
        );
        assert_eq!(seeded("", Some("[core]\n\tx = y\n"), false), "LAST");
    }

    #[test]
    fn the_upstream_of_a_branch_is_found() {
        let text = "[branch \"a\"]\n\tremote = origin\n\tmerge = refs/heads/b\n";
        let settings = Settings::parse(text.as_bytes());
        assert_eq!(settings.upstream(b"a").unwrap(), b"refs/remotes/origin/b");
        assert_eq!(settings.upstream(b"b"), None);
    }
}
