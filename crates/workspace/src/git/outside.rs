//! Repository of a linked working tree or a submodule, outside the project.
//!
//! Input: a project whose `.git` is a file. Output: the directories of the host to show inside,
//! their targets, and the files in them that get other content. A `.git` file may come from a
//! stranger and name any directory. The repository must therefore name the project in turn, as git
//! sets up both; without this check, the sandbox would be shown an unrelated repository.

use super::config::{self, value_in_core};
use super::{common_dir, git_dir, named_by_file, pointer, small_file};
use crate::hide::repository::in_git_dirs;
use crate::path::normalize_path;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Maximum size of a configuration that is read, in bytes.
const MAX_CONFIG_BYTES: u64 = 256 << 10;

/// Location of a repository outside its project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutsideRepository {
    /// The project has no repository, or its repository is inside the project.
    None,
    /// Directories that make up the repository.
    Shown(Vec<ShownGitDir>),
    /// Git directory that does not name the project in turn.
    Foreign(PathBuf),
}

/// A directory that is mounted inside, read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownGitDir {
    /// Path on the host.
    pub source: PathBuf,
    /// Path at which git expects it inside.
    pub target: PathBuf,
    /// Files in it that get other content: path inside, and content.
    pub replaced: Vec<(PathBuf, Vec<u8>)>,
}

/// Finds the repository that a project's `.git` file names. `workspace` is the path of the project
/// inside.
pub fn find_outside(project: &Path, workspace: &Path) -> OutsideRepository {
    let file = project.join(".git");
    let is_file = file.symlink_metadata().is_ok_and(|meta| meta.is_file());
    let Some(named) = is_file.then(|| named_by_file(&file)).flatten() else {
        return OutsideRepository::None;
    };
    let Ok(project) = project.canonicalize() else {
        return OutsideRepository::None;
    };
    let Some(real) = git_dir(&project).filter(|real| !real.starts_with(&project)) else {
        return OutsideRepository::None;
    };
    let Ok(common) = common_dir(&real) else {
        return OutsideRepository::None;
    };
    let is_repository = ["objects", "refs"]
        .iter()
        .all(|part| common.join(part).is_dir());
    // A repository never contains its own working tree.
    if !is_repository || project.starts_with(&common) || !names_back(&real, &project) {
        return OutsideRepository::Foreign(real);
    }
    let inside = normalize_path(&workspace.join(named));
    let shown = match real.strip_prefix(&common) {
        Ok(below) if inside.ends_with(below) => {
            let depth = below.components().count();
            let target = inside.ancestors().nth(depth).unwrap_or(&inside).to_owned();
            vec![show(common, target)]
        }
        _ => vec![show(real, inside), show(common.clone(), common)],
    };
    OutsideRepository::Shown(shown)
}

/// Returns true if a git directory names `project` as its working tree: a linked one in its file
/// `gitdir`, a submodule in `core.worktree`.
pub(super) fn names_back(git_dir: &Path, project: &Path) -> bool {
    let leads_to = |path: PathBuf, wanted: &Path| {
        git_dir
            .join(path)
            .canonicalize()
            .is_ok_and(|real| real == wanted)
    };
    if let Ok(file) = pointer(&git_dir.join("gitdir")) {
        let dot_git = PathBuf::from(OsStr::from_bytes(&file));
        return dot_git
            .parent()
            .is_some_and(|dir| leads_to(dir.to_owned(), project));
    }
    let config = small_file(git_dir, "config", MAX_CONFIG_BYTES).unwrap_or_default();
    value_in_core(&config, "worktree")
        .is_some_and(|path| leads_to(PathBuf::from(OsStr::from_bytes(&path)), project))
}

/// Returns a git directory without credentials. `core.worktree` is removed as well: inside, the
/// working tree is the one that has the `.git` file.
fn show(source: PathBuf, target: PathBuf) -> ShownGitDir {
    let (replaced, hidden) = in_git_dirs(&source, vec![Vec::new()]);
    let place = |path: &[u8]| target.join(OsStr::from_bytes(path));
    let hidden = hidden.iter().map(|path| (place(path), Vec::new()));
    let mut replaced: Vec<(PathBuf, Vec<u8>)> = replaced
        .into_iter()
        .map(|(path, text)| (place(&path), text))
        .chain(hidden)
        .collect();
    let own = target.join("config");
    let text = match replaced.iter().position(|(path, _)| *path == own) {
        Some(at) => Some(replaced.remove(at).1),
        None => small_file(&source, "config", MAX_CONFIG_BYTES),
    };
    if let Some(text) = text {
        replaced.push((own, config::without_worktree(&text)));
    }
    ShownGitDir {
        source,
        target,
        replaced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn repository(path: &Path) {
        for dir in ["objects", "refs"] {
            fs::create_dir_all(path.join(dir)).unwrap();
        }
        fs::write(path.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(path.join("config"), "[core]\n\tbare = false\n").unwrap();
    }

    #[test]
    fn only_a_repository_that_names_the_project_is_shown() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let (main, tree) = (root.join("main/.git"), root.join("tree"));
        repository(&main);
        fs::create_dir_all(&tree).unwrap();
        let inside = Path::new("/workspace");
        assert_eq!(find_outside(&tree, inside), OutsideRepository::None);
        assert_eq!(
            find_outside(&root.join("main"), inside),
            OutsideRepository::None
        );
        // A project that names the repository of another one.
        fs::write(tree.join(".git"), format!("gitdir: {}\n", main.display())).unwrap();
        assert_eq!(
            find_outside(&tree, inside),
            OutsideRepository::Foreign(main.clone())
        );
        // A linked working tree, as git makes it.
        let linked = main.join("worktrees/tree");
        fs::create_dir_all(&linked).unwrap();
        fs::write(linked.join("HEAD"), "ref: refs/heads/side\n").unwrap();
        fs::write(linked.join("commondir"), "../..\n").unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", linked.display())).unwrap();
        assert_eq!(
            find_outside(&tree, inside),
            OutsideRepository::Foreign(linked.clone())
        );
        let back = format!("{}\n", tree.join(".git").display());
        fs::write(linked.join("gitdir"), back).unwrap();
        let OutsideRepository::Shown(shown) = find_outside(&tree, inside) else {
            panic!("it is not shown");
        };
        assert_eq!(shown.len(), 1);
        assert_eq!((&shown[0].source, &shown[0].target), (&main, &main));
        // A submodule names its repository by a relative path.
        let (module, sub) = (main.join("modules/sub"), root.join("main/sub"));
        repository(&module);
        fs::create_dir_all(&sub).unwrap();
        fs::write(sub.join(".git"), "gitdir: ../.git/modules/sub\n").unwrap();
        let config = "[core]\n\tbare = false\n\tworktree = ../../../sub\n";
        fs::write(module.join("config"), config).unwrap();
        let OutsideRepository::Shown(shown) = find_outside(&sub, inside) else {
            panic!("it is not shown");
        };
        assert_eq!(shown[0].target, Path::new("/.git/modules/sub"));
        let own = PathBuf::from("/.git/modules/sub/config");
        assert_eq!(
            shown[0].replaced,
            [(own, b"[core]\n\tbare = false\n".to_vec())]
        );
    }
}
