//! Language toolchains in the home directory, which are shown read-only in part.
//!
//! Only directories of compilers, interpreters and package caches are granted. Credentials beside
//! them (`~/.cargo/credentials.toml`, `~/.m2/settings.xml`) are never part of a grant, and a
//! configuration file is granted only if nothing in it looks like a secret.

use glovebox_settings::Surroundings;
use glovebox_spec::Grant;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Toolchain that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    /// Common name.
    pub name: &'static str,
    /// Parts to show, each at the same path inside.
    pub grants: Vec<Grant>,
    /// Variables, as `(name, value)`.
    pub env: Vec<(String, String)>,
}

/// Kind of toolchain: its location, and the parts that may be shown.
struct Kind {
    name: &'static str,
    /// Variable that overrides the base.
    base_variable: Option<&'static str>,
    /// Usual base: a path below the home directory, or an absolute path.
    base: &'static str,
    /// Parts below the base; empty for all of it.
    parts: &'static [&'static str],
    /// Configuration files, granted only if they contain no secret.
    configs: &'static [&'static str],
    /// Further variables to pass on.
    variables: &'static [&'static str],
}

const NONE: Kind = Kind {
    name: "",
    base_variable: None,
    base: "",
    parts: &[],
    configs: &[],
    variables: &[],
};

const KINDS: &[Kind] = &[
    Kind {
        name: "cargo",
        base_variable: Some("CARGO_HOME"),
        base: ".cargo",
        parts: &["bin", "registry", "git", "env"],
        configs: &["config.toml", "config"],
        ..NONE
    },
    Kind {
        name: "rustup",
        base_variable: Some("RUSTUP_HOME"),
        base: ".rustup",
        parts: &["toolchains", "settings.toml", "update-hashes"],
        variables: &["RUSTUP_TOOLCHAIN"],
        ..NONE
    },
    Kind {
        name: "nvm",
        base_variable: Some("NVM_DIR"),
        base: ".nvm",
        parts: &["versions", "alias", "nvm.sh"],
        ..NONE
    },
    Kind {
        name: "fnm",
        base_variable: Some("FNM_DIR"),
        base: ".local/share/fnm",
        parts: &["node-versions", "aliases"],
        ..NONE
    },
    Kind {
        name: "volta",
        base_variable: Some("VOLTA_HOME"),
        base: ".volta",
        parts: &["bin", "tools", "layout.v4"],
        ..NONE
    },
    Kind {
        name: "pyenv",
        base_variable: Some("PYENV_ROOT"),
        base: ".pyenv",
        variables: &["PYENV_VERSION"],
        ..NONE
    },
    Kind {
        name: "asdf",
        base_variable: Some("ASDF_DATA_DIR"),
        base: ".asdf",
        variables: &["ASDF_DIR"],
        ..NONE
    },
    Kind {
        name: "mise",
        base_variable: Some("MISE_DATA_DIR"),
        base: ".local/share/mise",
        parts: &["installs", "shims", "plugins"],
        ..NONE
    },
    Kind {
        name: "sdkman",
        base_variable: Some("SDKMAN_DIR"),
        base: ".sdkman",
        parts: &["candidates", "bin"],
        variables: &["JAVA_HOME"],
        ..NONE
    },
    Kind {
        name: "rbenv",
        base_variable: Some("RBENV_ROOT"),
        base: ".rbenv",
        variables: &["RBENV_VERSION"],
        ..NONE
    },
    Kind {
        name: "go",
        base_variable: Some("GOPATH"),
        base: "go",
        parts: &["bin", "pkg/mod"],
        variables: &["GOROOT"],
        ..NONE
    },
    Kind {
        name: "deno",
        base_variable: Some("DENO_INSTALL"),
        base: ".deno",
        parts: &["bin"],
        ..NONE
    },
    Kind {
        name: "bun",
        base_variable: Some("BUN_INSTALL"),
        base: ".bun",
        parts: &["bin", "install"],
        ..NONE
    },
    Kind {
        name: "local programs",
        base: ".local",
        parts: &[
            "bin",
            "share/uv/python",
            "share/uv/tools",
            "share/pipx/venvs",
            "pipx/venvs",
        ],
        ..NONE
    },
    Kind {
        name: "nix",
        base: "/nix",
        parts: &["store"],
        ..NONE
    },
];

/// Finds the toolchains of this user. `is_visible` returns true for host paths that are shown
/// inside anyway, which need no grant, only their variables.
pub fn find(host: &Surroundings, is_visible: impl Fn(&Path) -> bool) -> Vec<Toolchain> {
    let Some(home) = host.home() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for kind in KINDS {
        let moved = kind
            .base_variable
            .and_then(|name| host.var(name))
            .map(PathBuf::from);
        let base = moved
            .filter(|path| path.is_absolute())
            .unwrap_or_else(|| home.join(kind.base));
        if !base.is_dir() {
            continue;
        }
        let mut toolchain = Toolchain {
            name: kind.name,
            grants: Vec::new(),
            env: Vec::new(),
        };
        if !is_visible(&base) {
            toolchain.grants = parts(kind, &base, home);
            if toolchain.grants.is_empty() {
                continue;
            }
        }
        let is_inside = |path: &Path| {
            is_visible(path)
                || toolchain
                    .grants
                    .iter()
                    .any(|grant| path.starts_with(&grant.target))
                || path == base
        };
        for name in kind.base_variable.iter().chain(kind.variables) {
            if let Some(value) = host.var(name).and_then(|value| value.to_str())
                && (is_inside(Path::new(value)) || is_plain_word(value))
            {
                toolchain.env.push(((*name).to_owned(), value.to_owned()));
            }
        }
        if !toolchain.grants.is_empty() || !toolchain.env.is_empty() {
            found.push(toolchain);
        }
    }
    found
}

fn parts(kind: &Kind, base: &Path, home: &Path) -> Vec<Grant> {
    // A base that contains the home directory must never be granted whole, whatever a variable
    // says.
    if kind.parts.is_empty() && home.starts_with(base) {
        return Vec::new();
    }
    let mut paths: Vec<PathBuf> = if kind.parts.is_empty() {
        vec![base.to_owned()]
    } else {
        kind.parts
            .iter()
            .map(|part| base.join(part))
            .filter(|path| path.exists())
            .collect()
    };
    if kind.name == "local programs" {
        paths.extend(user_site_packages(base));
    }
    if !paths.is_empty() {
        paths.extend(
            kind.configs
                .iter()
                .map(|name| base.join(name))
                .filter(|path| is_free_of_secrets(path)),
        );
    }
    paths
        .into_iter()
        .map(|path| Grant {
            source: path.clone(),
            target: path,
        })
        .collect()
}

/// Returns the directories `~/.local/lib/python3.X`, where `pip install --user` puts modules.
fn user_site_packages(base: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(base.join("lib")) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    paths.sort();
    paths
}

/// Returns true for a version or toolchain name: nothing that could be a path or contain anything
/// else.
fn is_plain_word(value: &str) -> bool {
    value.len() <= 64
        && value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._+:-".contains(&byte))
}

/// Returns true if a configuration file exists and nothing in it looks like a credential.
fn is_free_of_secrets(path: &Path) -> bool {
    const MAX_BYTES: u64 = 64 << 10;
    if !path.is_file() {
        return false;
    }
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    if read.is_err() || text.len() as u64 > MAX_BYTES {
        return false;
    }
    let text = text.to_ascii_lowercase();
    let has_word = [
        "token",
        "password",
        "passwd",
        "secret",
        "api_key",
        "apikey",
        "authorization",
    ]
    .iter()
    .any(|word| text.contains(word));
    // `https://user:password@host`
    let has_login = text.split("://").skip(1).any(|rest| {
        let authority = rest
            .split(['/', '"', '\'', '\n'])
            .next()
            .unwrap_or_default();
        authority.contains('@')
    });
    !has_word && !has_login
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Home {
        dir: tempfile::TempDir,
    }

    impl Home {
        fn with(files: &[(&str, &str)]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = dir.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self { dir }
        }

        fn find(&self, vars: &[(&str, &str)]) -> Vec<Toolchain> {
            let host = Surroundings::fixed(self.dir.path(), Path::new("/"), vars);
            find(&host, |path| path.starts_with("/usr"))
        }

        fn shown(&self, vars: &[(&str, &str)]) -> Vec<String> {
            let all = self
                .find(vars)
                .into_iter()
                .filter(|toolchain| toolchain.name != "nix");
            all.flat_map(|toolchain| toolchain.grants)
                .filter_map(|grant| {
                    Some(
                        grant
                            .source
                            .strip_prefix(self.dir.path())
                            .ok()?
                            .display()
                            .to_string(),
                    )
                })
                .collect()
        }
    }

    #[test]
    fn only_parts_of_cargo_are_shown_and_never_credentials() {
        let home = Home::with(&[
            (".cargo/bin/cargo", ""),
            (".cargo/registry/index", ""),
            (".cargo/credentials.toml", "token = 'hush'"),
            (".cargo/config.toml", "[build]\njobs = 2\n"),
            (".ssh/id_ed25519", "hush"),
        ]);
        assert_eq!(
            home.shown(&[]),
            [".cargo/bin", ".cargo/registry", ".cargo/config.toml"]
        );
    }

    #[test]
    fn a_configuration_with_a_secret_is_left_out() {
        for text in [
            "[registries.x]\ntoken = \"hush\"",
            "[http]\nproxy = \"http://me:hush@proxy:8080\"",
            "[registries.x]\nindex = \"sparse+https://user:pw@host/index\"",
        ] {
            let home = Home::with(&[(".cargo/bin/cargo", ""), (".cargo/config.toml", text)]);
            assert_eq!(home.shown(&[]), [".cargo/bin"], "{text}");
        }
    }

    #[test]
    fn a_variable_cannot_turn_the_home_into_a_grant() {
        let home = Home::with(&[(".ssh/id_ed25519", "hush"), ("bin/tool", "")]);
        let path = home.dir.path().display().to_string();
        assert_eq!(home.shown(&[("PYENV_ROOT", &path)]), Vec::<String>::new());
        assert_eq!(home.shown(&[("RBENV_ROOT", "/")]), Vec::<String>::new());
        assert_eq!(home.shown(&[("GOPATH", &path)]), ["bin"]);
    }

    #[test]
    fn variables_pass_only_when_they_point_inside() {
        let home = Home::with(&[
            (".rustup/toolchains/stable/x", ""),
            (".sdkman/candidates/java/x", ""),
        ]);
        let vars = [
            ("RUSTUP_TOOLCHAIN", "stable"),
            ("JAVA_HOME", "/etc/secret"),
            ("GITHUB_TOKEN", "hush"),
        ];
        let env: Vec<_> = home
            .find(&vars)
            .into_iter()
            .flat_map(|toolchain| toolchain.env)
            .collect();
        assert_eq!(env, [("RUSTUP_TOOLCHAIN".to_owned(), "stable".to_owned())]);
    }
}
