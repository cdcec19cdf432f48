//! What a sandbox is not shown of a project: secrets, and what the user excluded.
//!
//! In: the project and [`HideRules`]. Out: relative paths, and how many for which reason. Names decide,
//! contents are not read, so a project of a hundred thousand files costs a few dozen milliseconds:
//! directories are listed by several threads, and nothing is opened but directories.
//!
//! Directories of third-party and generated files ([`SKIPPED`]) are not looked into, for the same reason;
//! a pattern may hide them as a whole. `.git` is among them: it belongs to the project's owner, and
//! what is in it never comes back.

use crate::beneath::{Anchor, io, read_names, stat_at};
use crate::filter::compile;
use glovebox_proto::{Code, Fault};
use ignore::gitignore::Gitignore;
use rustix::fd::AsFd as _;
use rustix::fs::FileType;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Name of the file in a project that says what its sandboxes are not shown; see `gitignore(5)`.
pub const IGNORE_FILE: &str = ".gloveboxignore";
/// Directories that are not looked into.
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
/// Most bytes of an ignore file.
const MAX_IGNORE_BYTES: u64 = 1 << 20;
/// Most paths that are hidden one by one.
const MAX_HIDDEN: usize = 100_000;
/// How deep within a hidden directory something may lie that is shown nevertheless.
const MAX_DEPTH: usize = 64;
/// Most threads that list directories.
const MAX_THREADS: usize = 4;
/// Directories that one thread lists before it gets help.
const ALONE_DIRS: usize = 32;

/// What is hidden.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HideRules {
    /// Patterns as in a `.gitignore`, in addition to those of [`IGNORE_FILE`].
    pub exclude: Vec<String>,
    /// Patterns of what is shown nevertheless, secrets among them.
    pub include: Vec<String>,
}

/// Why a path is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HideReason {
    /// Its name is that of a file with secrets.
    Secret,
    /// A pattern says so.
    Excluded,
}

/// What is hidden of one project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hidden {
    /// Relative paths and why, sorted. What lies below one of them is hidden with it.
    pub paths: Vec<(PathBuf, HideReason)>,
}

impl Hidden {
    /// How many paths are hidden for a reason.
    pub fn count(&self, reason: HideReason) -> usize {
        self.paths.iter().filter(|(_, why)| *why == reason).count()
    }
}

/// Finds what is hidden of a project.
///
/// # Errors
/// When a pattern is none, the ignore file cannot be read, or far too much would be hidden one by one.
pub fn find_hidden(project: &Path, rules: &HideRules) -> Result<Hidden, Fault> {
    let anchor = Anchor::open(project)?;
    let mut exclude = ignore_file(&anchor)?;
    exclude.extend(rules.exclude.iter().cloned());
    let scan = Scan {
        anchor,
        exclude: compile(&exclude)?,
        include: compile(&rules.include)?,
        queue: Mutex::new(Queue {
            dirs: vec![Vec::new()],
            ..Queue::default()
        }),
        wake: Condvar::new(),
    };
    // Most projects are through before another thread would have begun.
    scan.work(Some(ALONE_DIRS));
    if scan.is_unfinished() {
        let threads =
            std::thread::available_parallelism().map_or(1, |count| count.get().min(MAX_THREADS));
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // One thread is enough where there can be no more.
                let _ = std::thread::Builder::new().spawn_scoped(scope, || scan.work(None));
            }
            scan.work(None);
        });
    }
    let queue = scan
        .queue
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(fault) = queue.failure {
        return Err(fault);
    }
    let mut paths: Vec<(PathBuf, HideReason)> = queue
        .hidden
        .into_iter()
        .map(|(path, reason)| (PathBuf::from(std::ffi::OsString::from_vec(path)), reason))
        .collect();
    paths.sort();
    Ok(Hidden { paths })
}

/// The project's own patterns.
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

/// Directories that wait, and what was found.
#[derive(Debug, Default)]
struct Queue {
    dirs: Vec<Vec<u8>>,
    busy: usize,
    hidden: Vec<(Vec<u8>, HideReason)>,
    failure: Option<Fault>,
}

struct Scan {
    anchor: Anchor,
    exclude: Gitignore,
    include: Gitignore,
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// What one directory turned out to have.
#[derive(Default)]
struct Found {
    dirs: Vec<Vec<u8>>,
    hidden: Vec<(Vec<u8>, HideReason)>,
}

impl Scan {
    fn is_unfinished(&self) -> bool {
        !self.lock().dirs.is_empty()
    }

    /// Lists directories until there are no more, or so many.
    fn work(&self, mut limit: Option<usize>) {
        let mut queue = self.lock();
        loop {
            match &mut limit {
                Some(0) => return,
                Some(left) => *left -= 1,
                None => {}
            }
            let Some(dir) = queue.dirs.pop() else {
                if queue.busy == 0 {
                    self.wake.notify_all();
                    return;
                }
                queue = self
                    .wake
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            queue.busy += 1;
            drop(queue);
            let mut found = Found::default();
            let result = self.directory(&dir, &mut found);
            queue = self.lock();
            queue.busy -= 1;
            queue.dirs.extend(found.dirs);
            queue.hidden.extend(found.hidden);
            let failed = result.err().or_else(|| {
                (queue.hidden.len() > MAX_HIDDEN).then(|| {
                    Fault::failed(
                        Code::TooLarge,
                        format!("more than {MAX_HIDDEN} files would be hidden one by one"),
                    )
                    .remedy("exclude the directories they are in")
                })
            });
            if let Some(fault) = failed {
                queue.failure.get_or_insert(fault);
                queue.dirs.clear();
            }
            self.wake.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the names in one directory.
    fn directory(&self, path: &[u8], found: &mut Found) -> Result<(), Fault> {
        self.each(path, |name, child, is_dir| {
            match self.verdict(name, child, is_dir) {
                Some(reason) if is_dir && !self.include.is_empty() => {
                    // Something below may be shown nevertheless.
                    let mut below = Vec::new();
                    if self.covers_shown(child, 0, reason, &mut below)? {
                        found.hidden.append(&mut below);
                    } else {
                        found.hidden.push((child.to_vec(), reason));
                    }
                }
                Some(reason) => found.hidden.push((child.to_vec(), reason)),
                None if is_dir && !is_one_of(name, SKIPPED) => found.dirs.push(child.to_vec()),
                None => {}
            }
            Ok(())
        })
    }

    /// Lists what is hidden below a directory; whether anything below it is shown.
    fn covers_shown(
        &self,
        path: &[u8],
        depth: usize,
        reason: HideReason,
        hidden: &mut Vec<(Vec<u8>, HideReason)>,
    ) -> Result<bool, Fault> {
        let mut is_any_shown = false;
        if depth > MAX_DEPTH {
            return Ok(false);
        }
        self.each(path, |_, child, is_dir| {
            let at = Path::new(OsStr::from_bytes(child));
            if self.include.matched(at, is_dir).is_ignore() {
                is_any_shown = true;
                return Ok(());
            }
            if is_dir {
                let mut below = Vec::new();
                if self.covers_shown(child, depth + 1, reason, &mut below)? {
                    is_any_shown = true;
                    hidden.append(&mut below);
                    return Ok(());
                }
            }
            hidden.push((child.to_vec(), reason));
            Ok(())
        })?;
        Ok(is_any_shown)
    }

    /// Calls `act` with name, path and whether it is a directory, of everything in a directory.
    fn each(
        &self,
        path: &[u8],
        mut act: impl FnMut(&[u8], &[u8], bool) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let dir = match self.anchor.dir(path) {
            Ok(dir) => dir,
            // What we may not look into, the sandbox may not either; or it is gone; or it lies deeper
            // than a path can say.
            Err(
                Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG,
            ) => return Ok(()),
            Err(errno) => {
                let at = self.anchor.path().join(OsStr::from_bytes(path));
                return Err(io("read", &at, errno));
            }
        };
        let mut child = path.to_vec();
        if !child.is_empty() {
            child.push(b'/');
        }
        let length = child.len();
        let mut failure = None;
        read_names(&dir, |name, kind| {
            let is_dir = match kind {
                FileType::Directory => true,
                FileType::Unknown => stat_at(dir.as_fd(), name)
                    .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
                _ => false,
            };
            child.truncate(length);
            child.extend_from_slice(name);
            act(name, &child, is_dir).map_err(|fault| {
                failure = Some(fault);
                Errno::CANCELED
            })
        })
        .map_err(|errno| {
            failure.unwrap_or_else(|| {
                io(
                    "read",
                    &self.anchor.path().join(OsStr::from_bytes(path)),
                    errno,
                )
            })
        })
    }

    fn verdict(&self, name: &[u8], path: &[u8], is_dir: bool) -> Option<HideReason> {
        let at = || Path::new(OsStr::from_bytes(path));
        let reason = if is_secret(name, is_dir) {
            HideReason::Secret
        } else if !self.exclude.is_empty() && self.exclude.matched(at(), is_dir).is_ignore() {
            HideReason::Excluded
        } else {
            return None;
        };
        let is_shown = !self.include.is_empty() && self.include.matched(at(), is_dir).is_ignore();
        (!is_shown).then_some(reason)
    }
}

/// Directories with secrets.
const SECRET_DIRS: &[&str] = &[".aws", ".azure", ".gnupg", ".kube", ".ssh"];
/// Files with secrets.
const SECRET_FILES: &[&str] = &[
    ".boto",
    ".docker-credentials",
    ".dockercfg",
    ".env",
    ".git-credentials",
    ".htpasswd",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".s3cfg",
    ".vault-token",
    "_netrc",
    "application_default_credentials.json",
    "credentials.json",
    "credentials.tfrc.json",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "id_rsa",
];
/// Endings of files with keys.
const SECRET_ENDINGS: &[&str] = &[
    ".jks",
    ".kdbx",
    ".key",
    ".keystore",
    ".p12",
    ".pem",
    ".pfx",
    ".pkcs12",
    ".ppk",
];
/// Variants of `.env` that are there to be read.
const ENV_EXAMPLES: &[&str] = &[
    "default", "defaults", "dist", "example", "sample", "template",
];

/// Whether something of that name usually holds secrets.
fn is_secret(name: &[u8], is_dir: bool) -> bool {
    if is_dir {
        return is_one_of(name, SECRET_DIRS);
    }
    if let Some(variant) = name.strip_prefix(b".env.") {
        let last = variant.rsplit(|byte| *byte == b'.').next();
        return !last.is_some_and(|last| is_one_of(last, ENV_EXAMPLES));
    }
    let starts_like_one = matches!(name.first(), Some(b'.' | b'_' | b'a' | b'c' | b'i'));
    (starts_like_one && is_one_of(name, SECRET_FILES))
        || SECRET_ENDINGS
            .iter()
            .any(|ending| name.len() > ending.len() && name.ends_with(ending.as_bytes()))
}

fn is_one_of(name: &[u8], list: &[&str]) -> bool {
    list.iter().any(|known| known.as_bytes() == name)
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
        // What is included shows, also within what is excluded.
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

    #[test]
    fn links_are_not_followed() {
        let project = project(&["file"]);
        let outside = self::project(&[".env"]);
        std::os::unix::fs::symlink(outside.path(), project.path().join("link")).unwrap();
        std::os::unix::fs::symlink("link/.env", project.path().join(".netrc")).unwrap();
        assert_eq!(hidden(project.path(), &[], &[]), [".netrc"]);
        // An ignore file that leads elsewhere is refused, not ignored.
        std::os::unix::fs::symlink("/etc/passwd", project.path().join(IGNORE_FILE)).unwrap();
        find_hidden(project.path(), &HideRules::default()).unwrap_err();
    }
}
