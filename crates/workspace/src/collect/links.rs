//! Symbolic links: those that stay within the tree are kept, the others are refused.
//!
//! A target is followed through the tree as it will be: the sandbox's changes over what the host
//! has. Following it by name alone would not do, since `a/..` is not where it seems to be when `a` is
//! itself a link.

use super::BaseTree;
use crate::{Change, ChangeSet, Node, Refusal, RefusalReason, RelPath};
use std::collections::HashMap;

/// How many links one target may lead through, as in the kernel (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// Moves links that lead out of the tree from the changes to what is refused.
pub(super) fn refuse(set: &mut ChangeSet, base: &dyn BaseTree) {
    let tree = Tree {
        changes: set
            .changes
            .iter()
            .map(|change| (change.path.as_bytes(), change.to()))
            .collect(),
        base,
    };
    let leads_out = |change: &Change| match change.to() {
        Some(Node::Link { target }) => tree.leads_out(&change.path, target),
        _ => false,
    };
    let verdicts: Vec<bool> = set.changes.iter().map(leads_out).collect();
    drop(tree);
    let mut verdicts = verdicts.into_iter();
    let refused = &mut set.refused;
    let mut above: Option<RelPath> = None;
    set.changes.retain(|change| {
        let is_refused = verdicts.next().unwrap_or(true);
        if above
            .as_ref()
            .is_some_and(|dir| change.path.starts_with(dir))
        {
            // The host's directory stays, and so does what is in it.
            return false;
        }
        if is_refused {
            above = Some(change.path.clone());
            refused.push(Refusal {
                path: change.path.as_bytes().to_vec(),
                reason: RefusalReason::LinkLeadsOut,
            });
        }
        !is_refused
    });
}

/// The tree as it will be.
struct Tree<'a> {
    changes: HashMap<&'a [u8], Option<&'a Node>>,
    base: &'a dyn BaseTree,
}

impl Tree<'_> {
    // TRUST: targets are a sandbox's; the number of components that are followed is bounded by the
    // length of a target (`PATH_MAX`) times the number of links.
    fn leads_out(&self, link: &RelPath, target: &[u8]) -> bool {
        let mut at: Vec<Vec<u8>> = link.components().map(<[u8]>::to_vec).collect();
        at.pop();
        // Components still to be followed, the next one last.
        let mut rest: Vec<Vec<u8>> = Vec::new();
        let mut links = 0;
        if !push(&mut rest, target) {
            return true;
        }
        while let Some(name) = rest.pop() {
            match name.as_slice() {
                b"" | b"." => {}
                b".." => {
                    if at.pop().is_none() {
                        return true;
                    }
                }
                _ => {
                    at.push(name);
                    if let Some(next) = self.link(&at.join(&b'/')) {
                        links += 1;
                        if links > MAX_LINKS || !push(&mut rest, &next) {
                            return true;
                        }
                        at.pop();
                    }
                }
            }
        }
        false
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

/// Adds the components of a target; `false` when it is absolute or empty.
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
    use crate::ChangeKind;
    use std::collections::BTreeMap;

    struct Links(BTreeMap<&'static str, &'static str>);

    impl BaseTree for Links {
        fn link(&self, path: &RelPath) -> Option<Vec<u8>> {
            let path = std::str::from_utf8(path.as_bytes()).ok()?;
            Some(self.0.get(path)?.as_bytes().to_vec())
        }
    }

    /// Which of the links would be refused.
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
    fn links_in_circles_are_refused() {
        assert_eq!(refused(&[("a", "b"), ("b", "a")], &[]), ["a", "b"]);
        assert_eq!(refused(&[("a", "a/a/a")], &[]), ["a"]);
    }
}
