//! What the user's own git configuration says: who commits, and which files are ignored everywhere.
//!
//! The host's git is asked, outside any repository: a project's configuration could say anything. The answer
//! is waited for when it is needed, so that asking costs no time of its own.

use super::Surroundings;
use glovebox_sandbox::jail::spec::GitUser;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Longest value that is taken, in bytes.
const MAX_VALUE_BYTES: usize = 200;
/// Variables by which git finds the user's configuration.
const PASSED: [&str; 5] = [
    "PATH",
    "XDG_CONFIG_HOME",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
];

/// The question, while git is answering it.
#[derive(Debug)]
pub(crate) struct GitQuestion {
    child: Option<Child>,
    usual_excludes: Option<PathBuf>,
}

/// The answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GitSettings {
    /// Who commits; `None` when nothing is known of that.
    pub user: Option<GitUser>,
    /// The user's own file of ignore rules.
    pub excludes_file: Option<PathBuf>,
}

impl GitQuestion {
    /// Asks.
    pub(crate) fn ask(host: &Surroundings) -> Self {
        let config_home = host
            .var("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| host.home().map(|home| home.join(".config")));
        let usual_excludes = config_home.as_ref().map(|dir| dir.join("git/ignore"));
        let files = [
            host.home().map(|home| home.join(".gitconfig")),
            config_home.map(|dir| dir.join("git/config")),
            host.var("GIT_CONFIG_GLOBAL").map(PathBuf::from),
            Some(PathBuf::from("/etc/gitconfig")),
        ];
        let is_any = files.iter().flatten().any(|file| file.exists());
        let child = is_any.then(|| {
            let mut command = Command::new("git");
            command
                .args(["config", "--null", "--get-regexp"])
                .arg(r"^(user\.(name|email)|core\.excludesfile)$")
                .current_dir("/")
                .env_clear()
                // No repository: the one at `/`, if there is any, has no say.
                .env("GIT_DIR", "/dev/null")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null());
            if let Some(home) = host.home() {
                command.env("HOME", home);
            }
            for name in PASSED {
                if let Some(value) = host.var(name) {
                    command.env(name, value);
                }
            }
            command.spawn().ok()
        });
        Self {
            child: child.flatten(),
            usual_excludes,
        }
    }

    /// Waits for the answer. Without git, or without a configuration, nothing is known.
    pub(crate) fn answer(self, host: &Surroundings) -> GitSettings {
        let output = self.child.and_then(|child| child.wait_with_output().ok());
        let text = output.map(|output| output.stdout).unwrap_or_default();
        let value = |key: &str| {
            let settings = text.split(|byte| *byte == 0);
            let last = settings
                .filter_map(|setting| std::str::from_utf8(setting).ok()?.split_once('\n'))
                .filter(|(name, _)| *name == key)
                .last();
            let value = last.map(|(_, value)| value.trim().to_owned());
            value.filter(|value| {
                !value.is_empty()
                    && value.len() < MAX_VALUE_BYTES
                    && !value.chars().any(char::is_control)
            })
        };
        let user = GitUser {
            name: value("user.name"),
            email: value("user.email"),
        };
        let excludes_file =
            value("core.excludesfile").and_then(|file| match file.strip_prefix("~/") {
                Some(below) => Some(host.home()?.join(below)),
                None => Some(PathBuf::from(file)),
            });
        GitSettings {
            user: (user != GitUser::default()).then_some(user),
            excludes_file: excludes_file.or(self.usual_excludes),
        }
    }
}
