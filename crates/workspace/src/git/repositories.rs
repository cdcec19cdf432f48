//! Selects the repositories of a project that get a git directory of their own inside.
//!
//! Input: the directories of the project that have a `.git`. Output: the repositories for the seed,
//! and the reasons for leaving out others. A `.git` file may come from a stranger and name any
//! directory. A repository outside must therefore name the project in turn, as git sets up both.

use super::outside::names_back;
use super::seed::{hidden_alternates, why_unusable};
use super::{common_dir, git_dir};
use glovebox_spec::{Grant, OutsideGitDirs, SeedRepository};
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of nested repositories that get a git directory.
const MAX_NESTED: usize = 32;

/// Repositories of a project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundRepositories {
    /// Repositories of the seed: the project's own first, then those nearest to the top.
    pub seeded: Vec<SeedRepository>,
    /// `.git` paths of repositories that are not available inside, with reasons.
    pub unusable: Vec<(PathBuf, String)>,
    /// `.git` paths of repositories beyond the maximum.
    pub excess: Vec<PathBuf>,
    /// Git directory of the project's own repository, if that does not name the project in turn.
    pub foreign: Option<PathBuf>,
    /// Directories with objects of the project's own repository that are not visible in the
    /// sandbox.
    pub hidden_objects: Vec<PathBuf>,
}

/// Classifies the repositories at `dirs`, which are paths relative to the project.
pub fn find_repositories(project: &Path, dirs: &[PathBuf], grants: &[Grant]) -> FoundRepositories {
    let mut found = FoundRepositories::default();
    let Ok(project) = project.canonicalize() else {
        return found;
    };
    let mut dirs: Vec<&PathBuf> = dirs.iter().collect();
    dirs.sort_by_key(|dir| (dir.components().count(), *dir));
    let mut nested = 0;
    for dir in dirs {
        let is_own = dir.as_os_str().is_empty();
        let dot_git = dir.join(".git");
        let Ok(meta) = project.join(&dot_git).symlink_metadata() else {
            continue;
        };
        let outside = if meta.is_file() {
            match find_linked(&project, dir) {
                Linked::To(dirs) => Some(dirs),
                Linked::Foreign(path) if is_own => {
                    found.foreign = Some(path);
                    continue;
                }
                // A submodule's git directory lies in the `.git` of the repository above it, and is
                // included there.
                Linked::Foreign(_) | Linked::No => continue,
            }
        } else if meta.is_dir() && !has_parts_of_repository(&project.join(&dot_git)) {
            // Git ignores such a directory as well.
            continue;
        } else {
            None
        };
        let repository = SeedRepository {
            path: dir.clone(),
            outside,
        };
        if let Some(why) = why_unusable(&project, &repository) {
            found.unusable.push((dot_git, why));
            continue;
        }
        if is_own {
            found.hidden_objects = hidden_alternates(&project, &repository, grants);
        } else if nested >= MAX_NESTED {
            found.excess.push(dot_git);
            continue;
        } else {
            nested += 1;
        }
        found.seeded.push(repository);
    }
    found
}

/// Returns true if a directory has entries with the names by which git recognizes a git directory,
/// of any type (`is_git_directory` in git's `setup.c`).
fn has_parts_of_repository(dir: &Path) -> bool {
    ["HEAD", "objects", "refs"]
        .iter()
        .all(|part| fs::symlink_metadata(dir.join(part)).is_ok())
}

/// Repository that a `.git` file names.
enum Linked {
    /// A repository that names the project in turn.
    To(OutsideGitDirs),
    /// A repository that does not name the project.
    Foreign(PathBuf),
    /// No repository, or one within the project that is included with another.
    No,
}

fn find_linked(project: &Path, dir: &Path) -> Linked {
    let top = project.join(dir);
    let Some(real) = git_dir(&top) else {
        return Linked::No;
    };
    let Ok(common) = common_dir(&real) else {
        return Linked::No;
    };
    let is_within = common.starts_with(project) && common != top;
    let is_linked = real != common;
    if is_within && !is_linked {
        return Linked::No;
    }
    let is_repository = ["objects", "refs"]
        .iter()
        .all(|part| common.join(part).is_dir());
    // A repository never contains its own working tree.
    if !is_repository || top.starts_with(&common) || !names_back(&real, &top) {
        return Linked::Foreign(real);
    }
    Linked::To(OutsideGitDirs {
        git_dir: real,
        common_dir: common,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(path: &Path) {
        for dir in ["objects", "refs"] {
            fs::create_dir_all(path.join(dir)).unwrap();
        }
        fs::write(path.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    }

    fn find(project: &Path, dirs: &[&str]) -> FoundRepositories {
        let dirs: Vec<PathBuf> = dirs.iter().map(PathBuf::from).collect();
        find_repositories(project, &dirs, &[])
    }

    #[test]
    fn a_linked_working_tree_must_be_named_in_turn() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let (main, tree) = (root.join("main/.git"), root.join("tree"));
        repository(&main);
        fs::create_dir_all(&tree).unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", main.display())).unwrap();
        assert_eq!(find(&tree, &[""]).foreign, Some(main.clone()));
        let linked = main.join("worktrees/tree");
        fs::create_dir_all(&linked).unwrap();
        fs::write(linked.join("HEAD"), "ref: refs/heads/side\n").unwrap();
        fs::write(linked.join("commondir"), "../..\n").unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", linked.display())).unwrap();
        assert_eq!(find(&tree, &[""]).foreign, Some(linked.clone()));
        let back = format!("{}\n", tree.join(".git").display());
        fs::write(linked.join("gitdir"), back).unwrap();
        let found = find(&tree, &[""]);
        let outside = found.seeded[0].outside.as_ref().unwrap();
        assert_eq!((&outside.git_dir, &outside.common_dir), (&linked, &main));
    }

    #[test]
    fn nested_repositories_nearest_to_the_top_are_taken() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        repository(&root.join(".git"));
        let names: Vec<String> = (0..40).map(|number| format!("x/{number:02}")).collect();
        for name in &names {
            repository(&root.join(name).join(".git"));
        }
        std::os::unix::fs::symlink("../x/00/.git", root.join("x/.git")).unwrap();
        let mut dirs = vec!["x", ""];
        dirs.extend(names.iter().map(String::as_str));
        let found = find(root, &dirs);
        assert_eq!(found.seeded.len(), 33);
        assert_eq!(found.seeded[0].path, Path::new(""));
        assert_eq!(found.excess.len(), 8);
        assert_eq!(found.unusable[0].0, Path::new("x/.git"));
        assert_eq!(found.unusable[0].1, "`x/.git` is a symbolic link");
    }
}
