//! Caches of package managers: their locations, and the ones that a sandbox gets.
//!
//! Inside, each is an overlay at the same path: commands read the host's content and write to a
//! layer of the sandbox. The table names only caches, never a directory above one. Credentials and
//! settings beside them (`~/.npmrc`, `~/.cargo/credentials.toml`, `~/.m2/settings.xml`,
//! `~/.gradle/gradle.properties`, `pip.conf`) are not part of any. Caches that contain clones of
//! repositories are omitted, because the clones' settings can contain credentials.
//!
//! Cargo's build output is in the project, in `target`. It is kept with the caches if git ignores
//! it.

use glovebox_settings::Surroundings;
use glovebox_spec::{CacheDir, Grant, WORKSPACE};
use glovebox_workspace::{IgnoreRules, RelPath};
use std::path::{Path, PathBuf};

/// Kind of cache.
struct Kind {
    name: &'static str,
    /// Variable that overrides the base. Only variables that commands receive as well.
    base_variable: Option<&'static str>,
    /// Usual base, below the home directory.
    base: &'static str,
    /// Path below the base.
    part: &'static str,
    /// True if `--cache` creates it where the host has none.
    is_made: bool,
}

const fn kind(name: &'static str, base: &'static str, part: &'static str) -> Kind {
    Kind {
        name,
        base_variable: None,
        base,
        part,
        is_made: true,
    }
}

/// Returns a kind that sandboxes get only if the host has it.
const fn found(name: &'static str, base: &'static str, part: &'static str) -> Kind {
    Kind {
        is_made: false,
        ..kind(name, base, part)
    }
}

const KINDS: &[Kind] = &[
    Kind {
        base_variable: Some("CARGO_HOME"),
        ..kind("cargo-registry", ".cargo", "registry")
    },
    Kind {
        base_variable: Some("CARGO_HOME"),
        ..kind("cargo-git", ".cargo", "git")
    },
    kind("npm", ".npm", "_cacache"),
    kind("pip", ".cache", "pip"),
    kind("uv", ".cache", "uv"),
    Kind {
        base_variable: Some("GOPATH"),
        ..kind("go-modules", "go", "pkg/mod")
    },
    kind("go-build", ".cache", "go-build"),
    kind("maven", ".m2", "repository"),
    found("maven-wrapper", ".m2", "wrapper"),
    found("gradle-caches", ".gradle", "caches"),
    found("gradle-wrapper", ".gradle", "wrapper"),
    found("ivy-cache", ".ivy2", "cache"),
    found("ivy-local", ".ivy2", "local"),
    found("sbt-boot", ".sbt", "boot"),
    found("coursier", ".cache", "coursier"),
    found("yarn", ".cache", "yarn"),
    found("yarn-berry-cache", ".yarn/berry", "cache"),
    found("yarn-berry-index", ".yarn/berry", "index"),
    found("pnpm", ".local/share/pnpm", "store"),
    found("playwright", ".cache", "ms-playwright"),
    found("puppeteer", ".cache", "puppeteer"),
    found("cypress", ".cache", "Cypress"),
    found("deno-deps", ".cache/deno", "deps"),
    found("deno-remote", ".cache/deno", "remote"),
    found("deno-npm", ".cache/deno", "npm"),
    found("deno-gen", ".cache/deno", "gen"),
    found("deno-registries", ".cache/deno", "registries"),
    found("poetry-cache", ".cache/pypoetry", "cache"),
    found("poetry-artifacts", ".cache/pypoetry", "artifacts"),
    found("poetry-virtualenvs", ".cache/pypoetry", "virtualenvs"),
    found("gem", ".gem", "ruby"),
    found("bundle", ".bundle", "cache"),
    found("nuget", ".nuget", "packages"),
    found("composer-files", ".cache/composer", "files"),
    found("composer-repo", ".cache/composer", "repo"),
    found("pub-hosted", ".pub-cache", "hosted"),
    found("pub-bin", ".pub-cache", "bin"),
    found("hex", ".hex", "packages"),
    found("mix-archives", ".mix", "archives"),
    found("mix-elixir", ".mix", "elixir"),
    found("opam", ".opam", ""),
    found("ccache", ".cache", "ccache"),
];

/// Options that decide which caches a sandbox gets.
#[derive(Debug)]
pub struct CacheOptions<'a> {
    /// True if the host's content is shown.
    pub shows_host: bool,
    /// True if caches are kept: then some that the host does not have are created.
    pub is_kept: bool,
    /// Project directory; nothing in it is a cache.
    pub project: &'a Path,
    /// Host paths that the user granted explicitly; they are mounted unchanged.
    pub grants: &'a [Grant],
}

/// Finds the caches of this user. `is_visible` returns true for host paths that are shown inside
/// anyway: there a cache can be covered, but not created.
pub fn find(
    host: &Surroundings,
    wish: &CacheOptions<'_>,
    is_visible: impl Fn(&Path) -> bool,
) -> Vec<CacheDir> {
    let Some(home) = host.home() else {
        return Vec::new();
    };
    let mut found: Vec<CacheDir> = Vec::new();
    for kind in KINDS {
        // Joining an empty part would leave a trailing slash.
        let target: PathBuf = base(kind, host, home)
            .join(kind.part)
            .components()
            .collect();
        let touches = |other: &Path| target.starts_with(other) || other.starts_with(&target);
        let is_of_others = touches(wish.project)
            || ["/proc", "/dev", WORKSPACE]
                .iter()
                .any(|own| target.starts_with(own))
            || wish.grants.iter().any(|grant| touches(&grant.target))
            || found.iter().any(|cache| touches(&cache.target));
        if is_of_others {
            continue;
        }
        let source = Some(target.clone()).filter(|path| wish.shows_host && is_listable(path));
        let can_be_made = wish.is_kept && kind.is_made && !is_visible(&target);
        if source.is_some() || can_be_made {
            found.push(CacheDir {
                name: kind.name.to_owned(),
                source,
                target,
            });
        }
    }
    found
}

/// Name of cargo's build directory, if the project does not change it.
const CARGO_TARGET: &str = "target";

/// Returns the build output of a cargo project if it can be kept, which requires that git ignores
/// all of it. `hidden` lists the paths of the project that the sandbox does not show.
pub fn find_build_output(
    project: &Path,
    excludes_file: Option<&Path>,
    hidden: &[PathBuf],
) -> Option<CacheDir> {
    let output = project.join(CARGO_TARGET);
    let is_usable = match output.symlink_metadata() {
        Ok(meta) => meta.is_dir(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    if !is_usable
        || !project.join("Cargo.toml").is_file()
        || hidden.iter().any(|path| path == Path::new(CARGO_TARGET))
    {
        return None;
    }
    let rules = IgnoreRules::read(project, excludes_file).ok()?;
    let name = RelPath::new(CARGO_TARGET).ok()?;
    rules.leaves_out_whole(&name).then(|| CacheDir {
        name: "cargo-target".to_owned(),
        source: Some(output).filter(|path| path.is_dir()),
        target: Path::new(WORKSPACE).join(CARGO_TARGET),
    })
}

fn base(kind: &Kind, host: &Surroundings, home: &Path) -> PathBuf {
    let moved = kind
        .base_variable
        .and_then(|name| host.var(name))
        .map(PathBuf::from);
    moved
        .filter(|path| is_plain(path) && path.is_dir())
        .unwrap_or_else(|| home.join(kind.base))
}

/// Returns true if a path is absolute and without `..`, as a mount point must be.
fn is_plain(path: &Path) -> bool {
    use std::path::Component;
    path.is_absolute()
        && path
            .components()
            .skip(1)
            .all(|part| matches!(part, Component::Normal(_)))
}

/// Returns true if the user can list a directory; an overlay over any other shows nothing.
fn is_listable(path: &Path) -> bool {
    path.is_dir() && std::fs::read_dir(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn wish(project: &Path) -> CacheOptions<'_> {
        CacheOptions {
            shows_host: true,
            is_kept: false,
            project,
            grants: &[],
        }
    }

    fn found(home: &Path, vars: &[(&str, &str)], wish: &CacheOptions<'_>) -> Vec<String> {
        let host = Surroundings::fixed(home, Path::new("/"), vars);
        let all = find(&host, wish, |path| path.starts_with("/usr"));
        all.iter()
            .map(|cache| {
                let shown = if cache.source.is_some() {
                    ""
                } else {
                    " (empty)"
                };
                format!("{}{shown}", cache.name)
            })
            .collect()
    }

    #[test]
    fn caches_of_the_host_are_found_and_nothing_beside_them() {
        let home = tempfile::tempdir().unwrap();
        for dir in [".cargo/registry/index", ".npm/_cacache/tmp", ".ssh", ".m2"] {
            fs::create_dir_all(home.path().join(dir)).unwrap();
        }
        fs::write(home.path().join(".m2/settings.xml"), "<password>").unwrap();
        let project = Path::new("/project");
        let all = found(home.path(), &[], &wish(project));
        assert_eq!(all, ["cargo-registry", "npm"]);
        let hidden = CacheOptions {
            shows_host: false,
            ..wish(project)
        };
        assert!(found(home.path(), &[], &hidden).is_empty());
        let kept = CacheOptions {
            is_kept: true,
            ..wish(project)
        };
        let all = found(home.path(), &[], &kept);
        assert_eq!(all.len(), 8);
        assert_eq!(&all[..3], ["cargo-registry", "cargo-git (empty)", "npm"]);
    }

    #[test]
    fn no_cache_holds_what_lies_beside_it() {
        let home = tempfile::tempdir().unwrap();
        for kind in KINDS {
            fs::create_dir_all(home.path().join(kind.base).join(kind.part)).unwrap();
        }
        let host = Surroundings::fixed(home.path(), Path::new("/"), &[]);
        let all = find(&host, &wish(Path::new("/project")), |_| false);
        assert_eq!(all.len(), KINDS.len());
        for secret in [
            ".cargo/credentials.toml",
            ".m2/settings.xml",
            ".gradle/gradle.properties",
            ".gradle/init.gradle",
            ".gem/credentials",
            ".bundle/config",
            ".nuget/NuGet/NuGet.Config",
            ".pub-cache/credentials.json",
            ".hex/hex.config",
            ".sbt/.credentials",
            ".ivy2/.credentials",
            ".config/composer/auth.json",
            ".cache/deno/location_data",
        ] {
            let place = home.path().join(secret);
            let shows = all.iter().find(|cache| place.starts_with(&cache.target));
            assert!(shows.is_none(), "{secret} lies in {shows:?}");
        }
        let names: std::collections::BTreeSet<&str> = KINDS.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), KINDS.len());
    }

    #[test]
    fn guide_names_every_cache() {
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/caches.md");
        let guide = fs::read_to_string(guide).unwrap();
        for kind in KINDS {
            let place = Path::new(kind.base).join(kind.part);
            let place: PathBuf = place.components().collect();
            let is_named = kind.is_made || guide.contains(&format!("`~/{}`", place.display()));
            assert!(
                is_named && guide.contains(&format!("`{}`", kind.name)),
                "{}",
                kind.name
            );
        }
    }

    #[test]
    fn a_variable_leads_to_a_cache_and_never_to_the_home_or_the_project() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("registry")).unwrap();
        fs::create_dir_all(home.path().join("tree/own/registry")).unwrap();
        let path = |path: &str| home.path().join(path).display().to_string();
        let project = PathBuf::from(path("tree"));
        let with = |value: &str| found(home.path(), &[("CARGO_HOME", value)], &wish(&project));
        assert_eq!(with(&path("")), ["cargo-registry"]);
        assert!(with(&path("tree/own")).is_empty());
        assert!(with(&path("tree/../tree/own")).is_empty());
        assert!(with("relative").is_empty());
    }

    #[test]
    fn build_output_is_kept_where_it_is_never_a_change() {
        let temp = tempfile::tempdir().unwrap();
        let project = temp.path();
        let write = |path: &str, text: &str| fs::write(project.join(path), text).unwrap();
        let found = |hidden: &[&str]| {
            let hidden: Vec<PathBuf> = hidden.iter().map(PathBuf::from).collect();
            find_build_output(project, None, &hidden)
        };
        write(".gitignore", "/target\n");
        assert_eq!(found(&[]), None);
        write("Cargo.toml", "[package]\n");
        let cache = found(&[]).unwrap();
        assert_eq!(cache.in_workspace(), Some(Path::new("target")));
        assert_eq!(cache.source, None);
        fs::create_dir(project.join("target")).unwrap();
        assert_eq!(found(&[]).unwrap().source, Some(project.join("target")));
        assert_eq!(found(&["target"]), None);
        write(".gitignore", "");
        assert_eq!(found(&[]), None);
        write(".gitignore", "/target\n");
        fs::remove_dir(project.join("target")).unwrap();
        std::os::unix::fs::symlink("/", project.join("target")).unwrap();
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn what_the_user_grants_stays_a_grant() {
        let home = tempfile::tempdir().unwrap();
        for dir in [".cargo/registry", ".npm/_cacache"] {
            fs::create_dir_all(home.path().join(dir)).unwrap();
        }
        let grants = [Grant {
            source: home.path().join(".npm"),
            target: home.path().join(".npm"),
        }];
        let project = Path::new("/project");
        let granted = CacheOptions {
            grants: &grants,
            ..wish(project)
        };
        assert_eq!(found(home.path(), &[], &granted), ["cargo-registry"]);
    }
}
