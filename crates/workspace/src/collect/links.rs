//! Refuses symbolic links that lead out of the tree or into a repository.
//!
//! Targets are resolved in the tree as it will be after the apply: the sandbox's changes over the
//! host's files. Resolving by name alone is not enough, because `a/..` is somewhere else if `a` is
//! itself a link.

use super::{BaseTree, git_dirs, is_git_name};
use crate::{Change, ChangeKind, ChangeSet, Node, RefusalReason, RefusedPath, RelPath};
use std::collections::HashMap;

/// Maximum number of links that one target may lead through, as in the kernel
/// (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// Moves links that lead out of the tree from the changes to the refused paths.
pub(super) fn refuse(set: &mut ChangeSet, base: &dyn BaseTree) {
    let tree = Tree {
        changes: set
            .changes
            .iter()
            .map(|change| (change.path.as_bytes(), change.to()))
            .collect(),
        base,
    };
    let judge = |change: &Change| match change.to() {
        Some(Node::Link { target }) => tree.follow(&change.path, target).err(),
        _ => None,
    };
    let verdicts: Vec<Option<RefusalReason>> = set.changes.iter().map(judge).collect();
    drop(tree);
    let mut verdicts = verdicts.into_iter();
    let refused = &mut set.refused;
    let mut above: Option<RelPath> = None;
    set.changes.retain(|change| {
        let verdict = verdicts.next().unwrap_or(Some(RefusalReason::LinkLeadsOut));
        if above
            .as_ref()
            .is_some_and(|dir| change.path.starts_with(dir))
        {
            // The host's directory stays, and so does its content.
            return false;
        }
        let Some(reason) = verdict else {
            return true;
        };
        above = Some(change.path.clone());
        refused.push(RefusedPath {
            path: change.path.as_bytes().to_vec(),
            reason,
        });
        false
    });
}

/// Returns the links that lead out of a tree or into a repository. Apart from `links`, the tree has
/// only directories and files.
pub(crate) fn links_that_lead_out(
    links: impl Iterator<Item = (RelPath, Vec<u8>)>,
) -> Vec<RefusedPath> {
    let mut set = ChangeSet::default();
    set.changes.extend(links.map(|(path, target)| Change {
        path,
        kind: ChangeKind::Added {
            to: Node::Link { target },
        },
        flags: Vec::new(),
    }));
    refuse(&mut set, &NothingBefore);
    set.refused
}

/// Base without any files.
struct NothingBefore;

impl BaseTree for NothingBefore {
    fn link(&self, _: &RelPath) -> Option<Vec<u8>> {
        None
    }

    fn holds(&self, _: &RelPath) -> bool {
        false
    }

    fn git_dir(&self) -> Option<&RelPath> {
        None
    }
}

/// The tree as it will be after the apply.
struct Tree<'a> {
    changes: HashMap<&'a [u8], Option<&'a Node>>,
    base: &'a dyn BaseTree,
}

impl Tree<'_> {
    // TRUST: the sandbox controls the targets. The number of components that are resolved is
    // bounded by the length of a target (`PATH_MAX`) times the number of links.
    fn follow(&self, link: &RelPath, target: &[u8]) -> Result<(), RefusalReason> {
        let mut at: Vec<Vec<u8>> = link.components().map(<[u8]>::to_vec).collect();
        at.pop();
        // Components still to be resolved, in reverse order.
        let mut rest: Vec<Vec<u8>> = Vec::new();
        let mut links = 0;
        if !push(&mut rest, target) {
            return Err(RefusalReason::LinkLeadsOut);
        }
        while let Some(name) = rest.pop() {
            match name.as_slice() {
                b"" | b"." => {}
                b".." => {
                    if at.pop().is_none() {
                        return Err(RefusalReason::LinkLeadsOut);
                    }
                }
                _ if is_git_name(&name) => return Err(RefusalReason::LinkIntoGit),
                _ => {
                    at.push(name);
                    let here = at.join(&b'/');
                    if let Some(next) = self.link(&here) {
                        links += 1;
                        if links > MAX_LINKS || !push(&mut rest, &next) {
                            return Err(RefusalReason::LinkLeadsOut);
                        }
                        at.pop();
                    } else if RelPath::new(here)
                        .is_ok_and(|path| git_dirs::is_of_host(self.base, &path))
                    {
                        return Err(RefusalReason::LinkIntoGit);
                    }
                }
            }
        }
        Ok(())
    }

    fn link(&self, path: &[u8]) -> Option<Vec<u8>> {
        if let Some(to) = self.changes.get(path) {
            return match to {
                Some(Node::Link { target }) => Some(target.clone()),
                _ => None,
            };
        }
        self.base.link(&RelPath::new(path).ok()?)
    }
}

/// Adds the components of a target. Returns false if the target is absolute or empty.
fn push(rest: &mut Vec<Vec<u8>>, target: &[u8]) -> bool {
    if target.is_empty() || target[0] == b'/' {
        return false;
    }
    rest.extend(target.rsplit(|byte| *byte == b'/').map(<[u8]>::to_vec));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Links of the host by path, and parts of its repositories, which have an empty target.
    struct Links(BTreeMap<&'static str, &'static str>);

    impl BaseTree for Links {
        fn link(&self, path: &RelPath) -> Option<Vec<u8>> {
            let path = std::str::from_utf8(path.as_bytes()).ok()?;
            let target = self.0.get(path).filter(|target| !target.is_empty())?;
            Some(target.as_bytes().to_vec())
        }

        fn holds(&self, path: &RelPath) -> bool {
            std::str::from_utf8(path.as_bytes()).is_ok_and(|path| self.0.contains_key(path))
        }

        fn git_dir(&self) -> Option<&RelPath> {
            None
        }
    }

    /// Returns the links that are refused.
    fn refused(links: &[(&str, &str)], host: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut set = ChangeSet::default();
        for (path, target) in links {
            set.changes.push(Change {
                path: RelPath::new(*path).unwrap(),
                kind: ChangeKind::Added {
                    to: Node::Link {
                        target: target.as_bytes().to_vec(),
                    },
                },
                flags: Vec::new(),
            });
        }
        refuse(&mut set, &Links(host.iter().copied().collect()));
        assert_eq!(set.changes.len() + set.refused.len(), links.len());
        set.refused
            .into_iter()
            .map(|refusal| String::from_utf8(refusal.path).unwrap())
            .collect()
    }

    #[test]
    fn links_within_the_tree_stay() {
        let links = [
            ("a", "b"),
            ("dir/up", "../b"),
            ("dir/deep/up", "../../x/./y"),
            ("dangling", "no/such/thing"),
            ("self", "self-not"),
            ("dir/root", ".."),
        ];
        assert!(refused(&links, &[]).is_empty());
    }

    #[test]
    fn links_that_lead_out_are_refused() {
        for target in [
            "/etc",
            "/workspace/a",
            "..",
            "../x",
            "a/../../x",
            "dir/../..",
            "",
        ] {
            assert_eq!(refused(&[("link", target)], &[]), ["link"], "{target:?}");
        }
        assert_eq!(refused(&[("dir/link", "../../x")], &[]), ["dir/link"]);
    }

    #[test]
    fn a_way_out_through_other_links_is_found() {
        // By name alone `x/y/up/../../../etc` would be `etc`.
        let links = [("x/y/up", "../.."), ("z", "x/y/up/../../../etc")];
        assert_eq!(refused(&links, &[]), ["z"]);
        // Through a link of the host.
        assert_eq!(
            refused(&[("a", "data/secret")], &[("data", "/mnt/data")]),
            ["a"]
        );
        assert!(refused(&[("a", "data/file")], &[("data", "real")]).is_empty());
    }

    #[test]
    fn links_into_a_repository_are_refused() {
        for target in [
            ".git",
            ".git/config",
            "dir/../.GIT/hooks",
            "sub/.git/config",
            "GIT~1/config",
            ".git./config",
        ] {
            assert_eq!(refused(&[("link", target)], &[]), ["link"], "{target}");
        }
        assert_eq!(refused(&[("sub/link", "../.git/hooks")], &[]), ["sub/link"]);
        // Through other links: one of the sandbox and one of the host.
        assert_eq!(
            refused(&[("a", ".git"), ("b", "a/config")], &[]),
            ["a", "b"]
        );
        let host = [("meta", ".git")];
        assert_eq!(refused(&[("b", "meta/config")], &host), ["b"]);
        // A repository is recognized under any name.
        let host = [("bare/HEAD", ""), ("bare/objects", ""), ("bare/refs", "")];
        assert_eq!(
            refused(&[("b", "bare/config"), ("c", "bare")], &host),
            ["b", "c"]
        );
        let fine = [
            ("a", ".gitignore"),
            ("b", ".github/x"),
            ("c", "bares/config"),
        ];
        assert!(refused(&fine, &host).is_empty());
    }

    #[test]
    fn links_in_circles_are_refused() {
        assert_eq!(refused(&[("a", "b"), ("b", "a")], &[]), ["a", "b"]);
        assert_eq!(refused(&[("a", "a/a/a")], &[]), ["a"]);
    }
}
