//! Finds the paths of a project that are hidden from its sandboxes: secrets, and paths that the
//! user excluded.
//!
//! Input: the project and [`HideRules`]. Output: relative paths with reasons, and files of the
//! repository that are shown without their credentials. Names decide ([`names`]), and for untracked
//! files of settings also the content ([`content`]). A project of a hundred thousand files takes a
//! few dozen milliseconds: directories are listed by several threads ([`scan`]), and few files are
//! opened.
//!
//! A tracked file is never treated as a secret: it is in every clone and in `git show`, and a
//! sandbox without it would commit its deletion. A pattern of the user hides it nevertheless.
//!
//! Directories of third-party and generated files ([`SKIPPED`]) are not searched; a pattern may
//! hide them completely.

pub(crate) mod content;
mod names;
pub(crate) mod repository;
mod scan;

use crate::beneath::{Anchor, io};
use crate::git::TrackedFiles;
use glovebox_proto::{Code, Fault};
use rustix::io::Errno;
use scan::{Scan, ScanResult};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// Name of the file in a project with patterns of paths to hide from its sandboxes; see
/// `gitignore(5)`.
pub const IGNORE_FILE: &str = ".gloveboxignore";
/// Names of directories that are not searched.
pub const SKIPPED: &[&str] = &[
    ".git",
    ".hg",
    ".jj",
    ".mypy_cache",
    ".svn",
    ".tox",
    ".venv",
    "__pycache__",
    "node_modules",
    "target",
    "venv",
];
/// Maximum size of an ignore file, in bytes.
const MAX_IGNORE_BYTES: u64 = 1 << 20;
/// Maximum number of paths that are hidden one by one.
const MAX_HIDDEN: usize = 100_000;
/// Maximum number of files whose content is inspected, nearest to the top first.
const MAX_READ_FILES: usize = 256;
/// Maximum size of a file whose content is inspected, in bytes.
const MAX_READ_BYTES: u64 = 64 << 10;
/// Maximum size of a file of certificates that is inspected, in bytes. The bundles of public
/// authorities have 300 KiB.
const MAX_PEM_BYTES: u64 = 1 << 20;

/// Patterns that select what is hidden.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HideRules {
    /// Patterns as in a `.gitignore`, in addition to those of [`IGNORE_FILE`].
    pub exclude: Vec<String>,
    /// Patterns of paths that are shown nevertheless, even if they are secrets.
    pub include: Vec<String>,
}

/// Reason for which a path is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HideReason {
    /// The name is that of a file with secrets.
    Secret,
    /// The content has a private key or a token.
    Content,
    /// A pattern excludes the path.
    Excluded,
}

/// Paths of one project that are hidden.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HiddenPaths {
    /// Relative paths with reasons, sorted. Everything below a path is hidden with it.
    pub paths: Vec<(PathBuf, HideReason)>,
    /// Files of the repository that are shown with other content: configurations without
    /// credentials.
    pub replaced: Vec<(PathBuf, Vec<u8>)>,
    /// Directories with a `.git` that is not hidden.
    pub repositories: Vec<PathBuf>,
    /// Symbolic links near the top that are not hidden: in the first three levels, and at the top
    /// of `node_modules`. Their targets are not checked.
    pub links: Vec<PathBuf>,
}

impl HiddenPaths {
    /// Returns the number of paths that are hidden for a reason.
    pub fn count(&self, reason: HideReason) -> usize {
        self.paths.iter().filter(|(_, why)| *why == reason).count()
    }
}

/// Finds the paths of a project to hide.
///
/// # Errors
/// If a pattern is invalid, the ignore file cannot be read, or too many paths would be hidden one
/// by one.
pub fn find_hidden(project: &Path, rules: &HideRules) -> Result<HiddenPaths, Fault> {
    let anchor = Anchor::open(project)?;
    let mut exclude = ignore_file(&anchor)?;
    exclude.extend(rules.exclude.iter().cloned());
    let scan = Scan::new(anchor, &exclude, &rules.include)?;
    let ScanResult {
        hidden,
        readable,
        repositories,
        links,
    } = scan.run()?;
    let is_tracked_of_interest = !readable.is_empty()
        || hidden
            .iter()
            .any(|found| found.reason == HideReason::Secret);
    let tracked = if is_tracked_of_interest {
        TrackedFiles::read(project, &repositories)
    } else {
        TrackedFiles::default()
    };
    let mut paths: Vec<(Vec<u8>, HideReason)> = Vec::new();
    let mut pem_files = 0;
    for found in hidden {
        if found.reason != HideReason::Secret {
            paths.push((found.path, found.reason));
        } else if found.is_dir {
            scan.untracked_below(&found.path, &tracked, &mut paths)?;
        } else if !tracked.contains(&found.path) {
            let is_public = names::may_be_public(&found.path) && pem_files < MAX_READ_FILES && {
                pem_files += 1;
                let text = scan.read(&found.path, MAX_PEM_BYTES);
                text.is_some_and(|text| content::is_public_pem(&text))
            };
            if !is_public {
                paths.push((found.path, found.reason));
            }
        }
    }
    let untracked = readable.into_iter().filter(|path| !tracked.contains(path));
    for path in untracked.take(MAX_READ_FILES) {
        let text = scan.read(&path, MAX_READ_BYTES);
        if text.is_some_and(|text| content::has_secret(&text)) {
            paths.push((path, HideReason::Content));
        }
    }
    let (replaced, unreadable) = repository::without_credentials(project, &repositories);
    paths.extend(
        unreadable
            .into_iter()
            .map(|path| (path, HideReason::Content)),
    );
    let path_of = |bytes| PathBuf::from(OsString::from_vec(bytes));
    let mut paths: Vec<(PathBuf, HideReason)> = paths
        .into_iter()
        .map(|(path, reason)| (path_of(path), reason))
        .collect();
    if paths.len() > MAX_HIDDEN {
        return Err(scan::too_many());
    }
    paths.sort();
    let is_hidden = |path: &Path| {
        path.ancestors().any(|above| {
            paths
                .binary_search_by(|(hidden, _)| hidden.as_path().cmp(above))
                .is_ok()
        })
    };
    let repositories = repositories.into_iter().map(path_of);
    let repositories = repositories
        .filter(|dir| !is_hidden(&dir.join(".git")))
        .collect();
    let links = links.into_iter().map(path_of);
    let links = links.filter(|link| !is_hidden(link)).collect();
    Ok(HiddenPaths {
        paths,
        repositories,
        links,
        replaced: replaced
            .into_iter()
            .map(|(path, text)| (path_of(path), text))
            .collect(),
    })
}

/// Reads the patterns of the project's [`IGNORE_FILE`].
fn ignore_file(anchor: &Anchor) -> Result<Vec<String>, Fault> {
    let path = anchor.path().join(IGNORE_FILE);
    let file = match anchor.file(IGNORE_FILE.as_bytes()) {
        Ok((file, _)) => file,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(errno) => return Err(io("read", &path, errno)),
    };
    let mut text = String::new();
    file.take(MAX_IGNORE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| io("read", &path, error))?;
    if text.len() as u64 > MAX_IGNORE_BYTES {
        return Err(Fault::failed(
            Code::TooLarge,
            format!("{} has more than {MAX_IGNORE_BYTES} bytes", path.display()),
        ));
    }
    Ok(text.lines().map(ToOwned::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn project(files: &[&str]) -> tempfile::TempDir {
        let temp = tempfile::tempdir().unwrap();
        for file in files {
            let path = temp.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        temp
    }

    fn hidden(project: &Path, exclude: &[&str], include: &[&str]) -> Vec<String> {
        let owned = |list: &[&str]| list.iter().map(|line| (*line).to_owned()).collect();
        let rules = HideRules {
            exclude: owned(exclude),
            include: owned(include),
        };
        find_hidden(project, &rules)
            .unwrap()
            .paths
            .iter()
            .map(|(path, _)| path.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn secrets_are_hidden_and_examples_are_not() {
        let secrets = [
            ".aws/credentials",
            ".env",
            ".env.local",
            ".env.production.local",
            ".npmrc",
            "certs/server.pem",
            "deep/er/id_ed25519",
            "key.p12",
            "sub/.env",
            "tls.key",
        ];
        let others = [
            ".env.example",
            ".env.local.sample",
            ".env.template",
            ".environment",
            "env",
            "id_rsa.pub",
            "keyboard.rs",
            "node_modules/x/.env",
            "pem",
            "src/main.rs",
            "target/debug/x.pem",
        ];
        let project = project(&[secrets.as_slice(), others.as_slice()].concat());
        let mut expected = secrets.map(|name| name.trim_end_matches("/credentials").to_owned());
        expected.sort();
        assert_eq!(hidden(project.path(), &[], &[]), expected);
        assert_eq!(
            hidden(project.path(), &[], &[".env", "*.pem"]).len(),
            secrets.len() - 3
        );
        let found = find_hidden(project.path(), &HideRules::default()).unwrap();
        assert_eq!(found.count(HideReason::Secret), secrets.len());
        assert_eq!(found.count(HideReason::Excluded), 0);
    }

    #[test]
    fn patterns_of_the_user_and_of_the_project_hide() {
        let project = project(&[
            "a.log",
            "b.tmp",
            "build/x",
            "data/keep/one",
            "data/two",
            "data/deep/er/x",
        ]);
        fs::write(
            project.path().join(IGNORE_FILE),
            "# comment\n*.log\n!b.log\n",
        )
        .unwrap();
        assert_eq!(
            hidden(project.path(), &["/build/", "*.tmp"], &[]),
            ["a.log", "b.tmp", "build"]
        );
        assert_eq!(hidden(project.path(), &["data"], &[]), ["a.log", "data"]);
        // An included path is shown, also within an excluded directory.
        assert_eq!(
            hidden(project.path(), &["data"], &["data/keep/"]),
            ["a.log", "data/deep", "data/two"]
        );
        let rules = HideRules {
            exclude: vec!["[z-a]".to_owned()],
            include: Vec::new(),
        };
        let fault = find_hidden(project.path(), &rules).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument);
    }

    fn git(project: &Path, args: &[&str]) {
        let output = std::process::Command::new("git")
            .args(args)
            .current_dir(project)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
    }

    #[test]
    fn what_is_tracked_is_shown_unless_a_pattern_hides_it() {
        if !testkit::has_program("git") {
            testkit::skip!("needs git");
        }
        let project = project(&[
            ".aws/config",
            ".aws/credentials",
            ".env",
            ".npmrc",
            "nested/.env",
            "nested/.npmrc",
            "tests/server.key",
            "tests/untracked.key",
        ]);
        let key = "-----BEGIN PRIVATE KEY-----\nAA\n-----END PRIVATE KEY-----\n";
        fs::write(project.path().join("tests/tracked.json"), key).unwrap();
        fs::write(project.path().join("tests/untracked.json"), key).unwrap();
        fs::write(project.path().join("tests/untracked.rs"), key).unwrap();
        let tracked = [
            ".npmrc",
            ".aws/config",
            "tests/server.key",
            "tests/tracked.json",
        ];
        git(project.path(), &["init", "-q", "."]);
        git(project.path(), &[&["add"][..], &tracked].concat());
        let nested = project.path().join("nested");
        git(&nested, &["init", "-q", "."]);
        git(&nested, &["add", ".npmrc"]);
        assert_eq!(
            hidden(project.path(), &[], &[]),
            [
                ".aws/credentials",
                ".env",
                "nested/.env",
                "tests/untracked.json",
                "tests/untracked.key"
            ]
        );
        let found = find_hidden(project.path(), &HideRules::default()).unwrap();
        assert_eq!(found.count(HideReason::Content), 1);
        assert_eq!(
            hidden(
                project.path(),
                &[".npmrc"],
                &[".env", "*.key", "untracked.json"]
            ),
            [".aws/credentials", ".npmrc", "nested/.npmrc"]
        );
        // A project that is a part of a repository.
        assert_eq!(
            hidden(&project.path().join("tests"), &[], &[]),
            ["untracked.json", "untracked.key"]
        );
        // If the index cannot be read, no file counts as tracked.
        fs::write(project.path().join(".git/index"), "DIRC").unwrap();
        assert!(hidden(project.path(), &[], &[]).contains(&".npmrc".to_owned()));
    }

    #[test]
    fn public_certificates_are_shown() {
        let project = project(&["lib/certifi/cacert.pem", "own.pem", "both.pem"]);
        let write = |name: &str, kinds: &[&str]| {
            let block = |kind: &&str| format!("-----BEGIN {kind}-----\nAA\n-----END {kind}-----\n");
            let text: String = kinds.iter().map(block).collect();
            fs::write(project.path().join(name), text).unwrap();
        };
        write("lib/certifi/cacert.pem", &["CERTIFICATE"; 900]);
        write("own.pem", &["EC PRIVATE KEY"]);
        write("both.pem", &["CERTIFICATE", "PRIVATE KEY"]);
        assert_eq!(hidden(project.path(), &[], &[]), ["both.pem", "own.pem"]);
    }

    #[test]
    fn credentials_of_remotes_are_left_out() {
        let project = project(&[
            ".git/HEAD",
            ".git/config",
            ".git/credentials",
            ".git/modules/a/b/HEAD",
            ".git/modules/a/b/config",
            "plain/.git/HEAD",
            "plain/.git/config",
        ]);
        let write = |name: &str, text: &str| fs::write(project.path().join(name), text).unwrap();
        write(
            ".git/config",
            "[remote \"o\"]\n\turl = https://me:pw@host/x\n",
        );
        write(
            ".git/modules/a/b/config",
            "[remote \"o\"]\n\turl = https://pw@host/x\n",
        );
        write(
            "plain/.git/config",
            "[remote \"o\"]\n\turl = https://host/x\n",
        );
        let found = find_hidden(project.path(), &HideRules::default()).unwrap();
        let text = |path: &str| {
            let path = Path::new(path);
            let found = found.replaced.iter().find(|(at, _)| at == path);
            String::from_utf8(found.unwrap().1.clone()).unwrap()
        };
        assert_eq!(
            text(".git/config"),
            "[remote \"o\"]\n\turl = https://host/x\n"
        );
        assert_eq!(text(".git/modules/a/b/config"), text(".git/config"));
        assert_eq!(found.replaced.len(), 2);
        assert_eq!(
            found.paths,
            [(".git/credentials".into(), HideReason::Content)]
        );
        // A file that is too long to inspect is not shown.
        write(".git/config", &"# x\n".repeat(100_000));
        assert_eq!(
            hidden(project.path(), &[], &[]),
            [".git/config", ".git/credentials"]
        );
    }

    #[test]
    fn links_are_noted_near_the_top_and_among_packages() {
        let project = project(&[
            "a/b/c/file",
            "node_modules/@scope/own/file",
            "node_modules/own/deep/file",
            "target/file",
        ]);
        for link in [
            "a/b/link",
            "a/b/c/deep",
            "node_modules/linked",
            "node_modules/@scope/linked",
            "node_modules/own/deep/link",
            "target/link",
        ] {
            std::os::unix::fs::symlink("/", project.path().join(link)).unwrap();
        }
        let mut found = find_hidden(project.path(), &HideRules::default()).unwrap();
        found.links.sort();
        let noted = [
            "a/b/link",
            "node_modules/@scope/linked",
            "node_modules/linked",
        ];
        assert_eq!(found.links, noted.map(PathBuf::from));
    }

    #[test]
    fn links_are_not_followed() {
        let project = project(&["file"]);
        let outside = self::project(&[".env"]);
        std::os::unix::fs::symlink(outside.path(), project.path().join("link")).unwrap();
        std::os::unix::fs::symlink("link/.env", project.path().join(".netrc")).unwrap();
        assert_eq!(hidden(project.path(), &[], &[]), [".netrc"]);
        let found = find_hidden(project.path(), &HideRules::default()).unwrap();
        assert_eq!(found.links, [Path::new("link")]);
        // An ignore file that is a link is refused, not ignored.
        std::os::unix::fs::symlink("/etc/passwd", project.path().join(IGNORE_FILE)).unwrap();
        find_hidden(project.path(), &HideRules::default()).unwrap_err();
    }
}
