//! Published projects whose own tests run inside sandboxes: sources at fixed versions, and the
//! programs that run their tests. Each group has a directory beside the clients', with a file that
//! records its content.

use crate::clients;
use crate::step::{has_program, output, say};
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Python source distributions that include tests: directory, version.
const PYTHON_SOURCES: [(&str, &str); 3] = [
    ("click", "8.1.8"),
    ("flask", "3.1.1"),
    ("requests", "2.32.4"),
];
/// Packages that run these tests, and their dependencies.
const PYTHON_PACKAGES: [&str; 10] = [
    "pytest==8.3.5",
    "pytest-mock==3.14.0",
    "pytest-httpbin==2.1.0",
    "PySocks==1.7.1",
    "werkzeug==3.1.3",
    "asgiref==3.8.1",
    "python-dotenv==1.1.0",
    "click==8.1.8",
    "flask==3.1.1",
    "requests==2.32.4",
];
/// Node package that includes tests.
const MINIMIST: (&str, &str) = ("minimist", "1.2.8");
/// Test runner of the Node package.
const TAPE: &str = "tape@5.9.0";
/// Debian source package, because the Node package comes without tests.
const EXPRESS: (&str, &str) = ("node-express", "4.18.2+~4.17.14-1");
/// Debian source package with `configure` and a makefile.
const ZLIB: (&str, &str) = ("zlib", "1:1.2.13.dfsg-1");
/// Crate that is published with its tests.
const RIPGREP: (&str, &str) = ("ripgrep", "14.1.1");

/// The system's Python, which sandboxes see. One in the user's home would be a toolchain, which
/// sandboxes see only if it is granted.
const SYSTEM_PYTHON: &str = "/usr/bin/python3";

/// Projects that are fetched together, into one directory.
struct Group {
    /// Name of the directory.
    name: &'static str,
    /// Content of the file that marks the group as complete.
    version: String,
    /// Fetches the group into an empty directory.
    fetch: fn(&Path) -> Result<()>,
}

/// Fetches missing groups, and prints those that cannot be fetched. Tests that need one are then
/// skipped with a message.
pub(crate) fn install_missing() {
    let groups = [
        Group {
            name: "python",
            version: format!("{PYTHON_SOURCES:?} {PYTHON_PACKAGES:?}"),
            fetch: fetch_python,
        },
        Group {
            name: "minimist",
            version: format!("{MINIMIST:?} {TAPE}"),
            fetch: fetch_minimist,
        },
        Group {
            name: "express",
            version: format!("{EXPRESS:?}"),
            fetch: fetch_express,
        },
        Group {
            name: "zlib",
            version: format!("{ZLIB:?}"),
            fetch: fetch_zlib,
        },
        Group {
            name: "ripgrep",
            version: format!("{RIPGREP:?}"),
            fetch: fetch_ripgrep,
        },
    ];
    for group in groups {
        install(&group);
    }
}

fn install(group: &Group) {
    let dir = clients::dir().join("projects").join(group.name);
    let mark = dir.join("installed");
    if fs::read_to_string(&mark).is_ok_and(|found| found == group.version) {
        return;
    }
    say(&format!(
        "==> fetch published projects into {}",
        dir.display()
    ));
    let fetch = || {
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        (group.fetch)(&dir)?;
        Ok::<_, anyhow::Error>(fs::write(&mark, &group.version)?)
    };
    if let Err(error) = fetch() {
        say(&format!(
            "{} cannot be fetched ({error:#}); the tests that need it are skipped",
            group.version
        ));
    }
}

fn fetch_python(dir: &Path) -> Result<()> {
    let pip = || {
        let mut pip = Command::new(SYSTEM_PYTHON);
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
        pip
    };
    let mut venv = Command::new(SYSTEM_PYTHON);
    run(venv
        .args(["-m", "venv", "--clear", "--without-pip"])
        .arg(dir.join("venv")))?;
    run(pip()
        .arg("--python")
        .arg(dir.join("venv/bin/python3"))
        .arg("install")
        .args(PYTHON_PACKAGES))?;
    run(pip()
        .args(["download", "--no-deps", "--no-binary", ":all:", "--dest"])
        .arg(dir)
        .args(PYTHON_SOURCES.map(|(name, version)| format!("{name}=={version}"))))?;
    for (name, version) in PYTHON_SOURCES {
        unpack(
            &dir.join(format!("{name}-{version}.tar.gz")),
            &dir.join(name),
        )?;
    }
    Ok(())
}

fn fetch_minimist(dir: &Path) -> Result<()> {
    let (name, version) = MINIMIST;
    run(npm()?
        .args(["pack", "--silent", "--pack-destination"])
        .arg(dir)
        .arg(format!("{name}@{version}")))?;
    unpack(
        &dir.join(format!("{name}-{version}.tgz")),
        &dir.join("source"),
    )?;
    npm_install(&dir.join("modules"), &[TAPE])
}

fn fetch_express(dir: &Path) -> Result<()> {
    unpack_debian_source(EXPRESS, dir)?;
    // Installs its dependencies, except the tools for style and coverage.
    let modules = dir.join("modules");
    fs::create_dir(&modules)?;
    fs::copy(
        dir.join("source/package.json"),
        modules.join("package.json"),
    )?;
    run(npm()?.current_dir(&modules).args([
        "pkg",
        "delete",
        "devDependencies.eslint",
        "devDependencies.nyc",
    ]))?;
    npm_install(&modules, &[])
}

fn fetch_zlib(dir: &Path) -> Result<()> {
    unpack_debian_source(ZLIB, dir)
}

/// Puts the crate into `source`, and its dependencies into cargo's cache, whose registry sandboxes
/// see.
fn fetch_ripgrep(dir: &Path) -> Result<()> {
    let (name, version) = RIPGREP;
    // Cargo fetches a crate only as a dependency. This crate has no library; cargo only warns about
    // that.
    let asking = dir.join("asking");
    fs::create_dir_all(asking.join("src"))?;
    fs::write(asking.join("src/lib.rs"), "")?;
    fs::write(
        asking.join("Cargo.toml"),
        format!(
            "[package]\nname = \"asking\"\n\n[dependencies]\n{name} = \"={version}\"\n\n[workspace]\n"
        ),
    )?;
    run(cargo().arg("fetch").current_dir(&asking))?;
    fs::remove_dir_all(asking)?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registries = home.context("there is no home")?.join("registry/src");
    let mut places = fs::read_dir(&registries)
        .with_context(|| format!("cannot look into {}", registries.display()))?
        .flatten()
        .map(|registry| registry.path().join(format!("{name}-{version}")));
    let found = places
        .find(|place| place.is_dir())
        .with_context(|| format!("{name} is not in {}", registries.display()))?;
    // In the cache, because no directory above it has a manifest that cargo would take for its
    // workspace.
    run(cargo().args(["fetch", "--locked"]).current_dir(&found))?;
    run(Command::new("cp")
        .arg("-r")
        .args([found, dir.join("source")]))
}

/// Returns the cargo of this project's toolchain, for use in any directory.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg("--quiet");
    command
}

fn npm() -> Result<Command> {
    ensure!(has_program("npm"), "there is no npm");
    Ok(Command::new("npm"))
}

fn npm_install(dir: &Path, packages: &[&str]) -> Result<()> {
    fs::create_dir_all(dir)?;
    run(npm()?
        .args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
        .arg(dir)
        .args(packages))
}

/// Downloads a Debian source package, and unpacks the upstream archive into `source`, without
/// Debian's patches.
///
/// Uses its own package lists and settings, so nothing on the machine changes.
fn unpack_debian_source((name, version): (&str, &str), dir: &Path) -> Result<()> {
    ensure!(has_program("apt-get"), "there is no apt-get");
    let own = dir.join("apt");
    let sources = own.join("sources");
    for name in ["sources", "lists/partial", "archives/partial"] {
        fs::create_dir_all(own.join(name))?;
    }
    // The machine's package archives also have the sources.
    let listed = output(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(SOURCESENTRY)",
        "Created-By: Packages",
        "Origin: Debian",
    ]))?;
    let files: BTreeSet<&Path> = listed
        .lines()
        .filter_map(|entry| Some(Path::new(entry.rsplit_once(':')?.0)))
        .collect();
    ensure!(!files.is_empty(), "there are no package lists of Debian");
    for file in files {
        let text = fs::read_to_string(file)?;
        let name = file.file_name().context("a list without a name")?;
        fs::write(sources.join(name), sources_instead(&text))?;
    }
    let apt = || {
        let mut apt = Command::new("apt-get");
        let options = [
            ("Dir::Etc::sourcelist", Path::new("/dev/null")),
            ("Dir::Etc::sourceparts", &sources),
            ("Dir::State::lists", &own.join("lists")),
            ("Dir::Cache", &own),
        ];
        for (option, path) in options {
            apt.arg("-o").arg(format!("{option}={}", path.display()));
        }
        apt.arg("-qq").current_dir(dir);
        apt
    };
    run(apt().arg("update"))?;
    run(apt()
        .args(["source", "--download-only"])
        .arg(format!("{name}={version}")))?;
    let upstream = version.rsplit_once('-').map_or(version, |(first, _)| first);
    let upstream = upstream.split_once(':').map_or(upstream, |(_, rest)| rest);
    let prefix = format!("{name}_{upstream}.orig.tar.");
    let archive = fs::read_dir(dir)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&prefix) && !name.ends_with(".asc")
        })
        .with_context(|| format!("there is no {prefix}*"))?;
    fs::remove_dir_all(own)?;
    unpack(&archive, &dir.join("source"))
}

/// Rewrites a list of package archives to list their sources instead.
fn sources_instead(list: &str) -> String {
    list.lines()
        .filter(|line| !line.starts_with("deb-src "))
        .map(|line| {
            if line.starts_with("Types:") {
                return "Types: deb-src\n".to_owned();
            }
            match line.strip_prefix("deb ") {
                Some(rest) => format!("deb-src {rest}\n"),
                None => format!("{line}\n"),
            }
        })
        .collect()
}

/// Unpacks an archive without its top directory.
fn unpack(archive: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    run(Command::new("tar")
        .args(["--strip-components=1", "--no-same-owner", "-xf"])
        .arg(archive)
        .arg("-C")
        .arg(to))
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_packages_becomes_one_of_sources() {
        let deb822 = "Types: deb deb-src\nURIs: http://example.org\nSuites: stable\n";
        assert_eq!(
            sources_instead(deb822),
            "Types: deb-src\nURIs: http://example.org\nSuites: stable\n"
        );
        let lines = "# deb one\ndeb [arch=amd64] http://example.org stable main\ndeb-src http://example.org stable main\n";
        assert_eq!(
            sources_instead(lines),
            "# deb one\ndeb-src [arch=amd64] http://example.org stable main\n"
        );
    }
}
