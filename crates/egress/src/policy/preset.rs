//! Presets: named lists of the hosts that a package manager or a service needs.

/// Named list of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Name that users write in the place of a rule.
    pub name: &'static str,
    /// Purpose of the preset, for help texts.
    pub about: &'static str,
    /// Rules as texts.
    pub rules: &'static [&'static str],
}

/// All presets, ordered by name.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "crates",
        about: "cargo: crates.io",
        rules: &[
            "index.crates.io:443",
            "static.crates.io:443",
            "crates.io:443",
        ],
    },
    Preset {
        name: "debian",
        about: "apt: packages of Debian",
        rules: &[
            "deb.debian.org",
            "security.debian.org",
            "ftp.debian.org",
            "snapshot.debian.org",
        ],
    },
    Preset {
        name: "github",
        about: "git over HTTPS, releases and the API of github.com",
        rules: &[
            "github.com:443",
            "api.github.com:443",
            "codeload.github.com:443",
            "raw.githubusercontent.com:443",
            "objects.githubusercontent.com:443",
            "release-assets.githubusercontent.com:443",
        ],
    },
    Preset {
        name: "gitlab",
        about: "git over HTTPS and the API of gitlab.com",
        rules: &["gitlab.com:443"],
    },
    Preset {
        name: "go",
        about: "go: the module proxy and its checksums",
        rules: &[
            "proxy.golang.org:443",
            "sum.golang.org:443",
            "storage.googleapis.com:443",
        ],
    },
    Preset {
        name: "maven",
        about: "maven and gradle: Maven Central",
        rules: &[
            "repo.maven.apache.org:443",
            "repo1.maven.org:443",
            "plugins.gradle.org:443",
            "services.gradle.org:443",
        ],
    },
    Preset {
        name: "npm",
        about: "npm, pnpm and yarn: the npm registry",
        rules: &["registry.npmjs.org:443", "registry.yarnpkg.com:443"],
    },
    Preset {
        name: "pypi",
        about: "pip, uv and poetry: PyPI",
        rules: &["pypi.org:443", "files.pythonhosted.org:443"],
    },
    Preset {
        name: "rubygems",
        about: "gem and bundler: RubyGems",
        rules: &["rubygems.org:443", "index.rubygems.org:443"],
    },
    Preset {
        name: "ubuntu",
        about: "apt: packages of Ubuntu",
        rules: &[
            "archive.ubuntu.com",
            "security.ubuntu.com",
            "ports.ubuntu.com",
        ],
    },
];

/// Returns the preset with this name.
pub(crate) fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    #[test]
    fn presets_are_sorted_and_consist_of_rules() {
        assert!(PRESETS.is_sorted_by_key(|preset| preset.name));
        for preset in PRESETS {
            let policy = Policy::new(&[preset.name], &[]).unwrap();
            assert_eq!(
                policy.allowed().len(),
                preset.rules.len(),
                "{}",
                preset.name
            );
        }
    }
}
