//! What the user's own git configuration says: who commits, and which files are ignored everywhere.
//!
//! From the user's own files only: a project's configuration could say anything. Plain files are read here;
//! where they include others or quote, the host's git is asked, outside any repository. Its answer is waited
//! for when it is needed.

use glovebox_sandbox::jail::spec::GitUser;
use glovebox_settings::Surroundings;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Longest value that is taken, in bytes.
const MAX_VALUE_BYTES: usize = 200;
/// Longest configuration that is read here, in bytes.
const MAX_PLAIN_BYTES: u64 = 64 << 10;
/// Variables by which git finds the user's configuration.
const PASSED: [&str; 3] = ["PATH", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL"];

type Values = Vec<(String, String)>;

/// The question, while git is answering it.
#[derive(Debug)]
pub struct GitQuestion {
    plain: Option<Values>,
    child: Option<Child>,
    usual_excludes: Option<PathBuf>,
}

/// The answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitSettings {
    /// Who commits; `None` when nothing is known of that.
    pub user: Option<GitUser>,
    /// The user's own file of ignore rules.
    pub excludes_file: Option<PathBuf>,
}

impl GitQuestion {
    /// Asks.
    pub fn ask(host: &Surroundings) -> Self {
        let config_home = host
            .var("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| host.home().map(|home| home.join(".config")));
        let usual_excludes = config_home.as_ref().map(|dir| dir.join("git/ignore"));
        // The later file goes before the earlier one.
        let files: Vec<PathBuf> = match host.var("GIT_CONFIG_GLOBAL") {
            Some(file) => vec![file.into()],
            None => [
                config_home.map(|dir| dir.join("git/config")),
                host.home().map(|home| home.join(".gitconfig")),
            ]
            .into_iter()
            .flatten()
            .collect(),
        };
        let plain: Option<Values> = files
            .iter()
            .map(|file| plain_settings(file))
            .collect::<Option<Vec<_>>>()
            .map(|all| all.concat());
        let child = plain.is_none().then(|| {
            let mut command = Command::new("git");
            command
                .args(["config", "--null", "--get-regexp"])
                .arg(r"^(user\.(name|email)|core\.excludesfile)$")
                .current_dir("/")
                .env_clear()
                // No repository: the one at `/`, if there is any, has no say.
                .env("GIT_DIR", "/dev/null")
                .env("GIT_CONFIG_NOSYSTEM", "1")
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
            plain,
            child: child.flatten(),
            usual_excludes,
        }
    }

    /// Waits for the answer. Without git, or without a configuration, nothing is known.
    pub fn answer(self, host: &Surroundings) -> GitSettings {
        let asked = || {
            let output = self.child.and_then(|child| child.wait_with_output().ok());
            let text = output.map(|output| output.stdout).unwrap_or_default();
            let settings = text.split(|byte| *byte == 0);
            let settings = settings.filter_map(|setting| {
                let (key, value) = std::str::from_utf8(setting).ok()?.split_once('\n')?;
                Some((key.to_owned(), value.to_owned()))
            });
            settings.collect()
        };
        let settings: Values = self.plain.unwrap_or_else(asked);
        let value = |key: &str| {
            let last = settings.iter().rfind(|(name, _)| name == key);
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
            excludes_file: excludes_file
                .filter(|file| file.is_absolute())
                .or(self.usual_excludes),
        }
    }
}

/// The settings of the sections `user` and `core` in a file, none if there is no such file; `None` where more
/// than these few lines is needed to read it as git does.
fn plain_settings(file: &Path) -> Option<Values> {
    let text = match std::fs::metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Some(Values::new()),
        Ok(meta) if meta.is_file() && meta.len() <= MAX_PLAIN_BYTES => {
            std::fs::read_to_string(file).ok()?
        }
        _ => return None,
    };
    let mut section = String::new();
    let mut settings = Values::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let (name, rest) = name.split_once(']')?;
            section = name.to_ascii_lowercase();
            if section.starts_with("include") || !rest.is_empty() {
                return None;
            }
            continue;
        }
        if line.ends_with('\\') {
            return None;
        }
        if matches!(section.as_str(), "user" | "core") {
            if line.contains(['"', '\\', '#', ';']) {
                return None;
            }
            if let Some((key, value)) = line.split_once('=') {
                let key = format!("{section}.{}", key.trim().to_ascii_lowercase());
                settings.push((key, value.trim().to_owned()));
            }
        }
    }
    Some(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_files_are_read_and_others_are_left_to_git() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("config");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            plain_settings(&file)
        };
        let plain = "# me\n[user]\n\tname = Ada L\n\tEmail=a@b.c\n[alias]\n\tx = \"!f\"\n[User]\nname = B\n";
        let want = [
            ("user.name", "Ada L"),
            ("user.email", "a@b.c"),
            ("user.name", "B"),
        ];
        let want = want.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(read(plain).unwrap(), want);
        for odd in [
            "[user]\n\tname = \"Ada\"\n",
            "[user] name = Ada\n",
            "[user]\n\tname = Ada # me\n",
            "[include]\n\tpath = more\n",
            "[includeIf \"gitdir:/x\"]\n\tpath = more\n",
            "[alias]\n\tx = a \\\n[user]\n",
        ] {
            assert_eq!(read(odd), None, "{odd}");
        }
        assert_eq!(
            plain_settings(&temp.path().join("none")),
            Some(Values::new())
        );
    }
}
