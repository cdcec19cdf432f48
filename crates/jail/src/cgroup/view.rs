//! What a sandbox sees of its own group: the directories, and where they appear inside.
//!
//! The places are those that programs look at by habit (and where containers have them): version 2 alone at
//! `/sys/fs/cgroup`; otherwise each hierarchy of version 1 in a directory named after its controller.

use super::hierarchy::{Hierarchy, Version};
use super::{Controller, Controllers, Limits, PARENT};
use crate::byte_path::BytePath;
use serde::{Deserialize, Serialize};

/// Where a sandbox sees its control group.
pub const GROUPS: &str = "/sys/fs/cgroup";

/// A group's directory in one hierarchy, and where the sandbox sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupView {
    /// The directory on the host, which may have to be made yet.
    pub source: BytePath,
    /// Name below [`GROUPS`]; empty for [`GROUPS`] itself, and then there is no other view.
    pub name: String,
    /// Symbolic links beside it that lead to it.
    pub links: Vec<String>,
}

impl Controllers {
    /// What the sandbox whose group has this name and these limits may see of it. The group need not exist yet.
    pub fn views(&self, name: &str, limits: &Limits) -> Vec<GroupView> {
        let used: Vec<&Hierarchy> = self
            .shared
            .hierarchies
            .iter()
            .filter(|hierarchy| limits.need(hierarchy))
            .collect();
        let is_alone = used.len() == 1;
        used.into_iter()
            .map(|hierarchy| {
                let mut names: Vec<String> = match hierarchy.version {
                    Version::V2 if is_alone => Vec::new(),
                    Version::V2 => vec!["unified".to_owned()],
                    Version::V1 => names_of_version_1(hierarchy),
                }
                .into_iter()
                .rev()
                .collect();
                GroupView {
                    source: hierarchy.path.join(PARENT).join(name).into(),
                    name: names.pop().unwrap_or_default(),
                    links: names,
                }
            })
            .collect()
    }
}

/// The names of a hierarchy of version 1: its controllers, and the one that programs look for.
fn names_of_version_1(hierarchy: &Hierarchy) -> Vec<String> {
    let mut names: Vec<String> = hierarchy
        .serves
        .iter()
        .map(|controller| controller.name().to_owned())
        .collect();
    if hierarchy.serves.contains(&Controller::Cpu) {
        names.push("cpu,cpuacct".to_owned());
    }
    names
}
