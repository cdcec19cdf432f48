//! View of a sandbox's own group: its directories, and their places inside.
//!
//! The places are those where programs look by habit (and where containers have them): version 2
//! alone at `/sys/fs/cgroup`; otherwise each hierarchy of version 1 in a directory named after its
//! controller.

use super::hierarchy::{Hierarchy, Version};
use super::{Controller, Controllers, Limits, PARENT};
use crate::byte_path::BytePath;
use serde::{Deserialize, Serialize};

/// Directory at which a sandbox sees its control group.
pub const GROUPS: &str = "/sys/fs/cgroup";

/// Directory of a group in one hierarchy, and its place inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupView {
    /// The directory on the host. It need not exist yet.
    pub source: BytePath,
    /// Name below [`GROUPS`]. Empty for [`GROUPS`] itself; there is then no other view.
    pub name: String,
    /// Names of symbolic links beside the directory that lead to it.
    pub links: Vec<String>,
}

impl Controllers {
    /// Returns the views for a sandbox whose group has this name and these limits. The group need
    /// not exist yet.
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

/// Returns the names of a version 1 hierarchy: its controllers, and the joint name that programs
/// look for.
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
