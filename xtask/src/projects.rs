//! Published projects whose own tests are run inside: their sources, at fixed versions, with the programs that run
//! those tests. Each group of them has a directory beside the clients', and a mark of what is in it.

use crate::clients;
use crate::step::{has_program, output, say};
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Source distributions of Python that come with tests: directory, version.
const PYTHON_SOURCES: [(&str, &str); 3] = [
    ("click", "8.1.8"),
    ("flask", "3.1.1"),
    ("requests", "2.32.4"),
];
/// What runs their tests, and what they need for it.
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
/// A package of Node that comes with tests.
const MINIMIST: (&str, &str) = ("minimist", "1.2.8");
/// What runs them.
const TAPE: &str = "tape@5.9.0";
/// A source package of Debian, for the package of Node comes without tests.
const EXPRESS: (&str, &str) = ("node-express", "4.18.2+~4.17.14-1");
/// A source package of Debian, with `configure` and a makefile.
const ZLIB: (&str, &str) = ("zlib", "1:1.2.13.dfsg-1");
/// A crate that is published with its tests.
const RIPGREP: (&str, &str) = ("ripgrep", "14.1.1");

/// The system's own, which sandboxes see: one of a home is a toolchain, and may be shown or not.
const SYSTEM_PYTHON: &str = "/usr/bin/python3";

/// What is fetched together, into a directory of its own.
struct Group {
    /// The directory.
    name: &'static str,
    /// What the mark says when all of it is there.
    version: String,
    /// Fetches it into an empty directory.
    fetch: fn(&Path) -> Result<()>,
}

/// Fetches what is missing, and says what cannot be: the tests that need it then skip and say so.
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
    // What it names is installed beside it, but for what measures its style and its coverage.
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

/// Leaves the crate in `source`, and what it needs in the cache of cargo, of which sandboxes see the registry.
fn fetch_ripgrep(dir: &Path) -> Result<()> {
    let (name, version) = RIPGREP;
    // Cargo fetches a crate for one that depends on it. This one has no library, of which cargo only warns.
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
    // There, for no directory above it is a package of another project.
    run(cargo().args(["fetch", "--locked"]).current_dir(&found))?;
    run(Command::new("cp")
        .arg("-r")
        .args([found, dir.join("source")]))
}

/// The cargo of this project's toolchain, wherever it is run.
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

/// Fetches a source package of Debian, and unpacks what its authors published into `source`, without Debian's patches.
///
/// Package lists and settings are our own: nothing of the machine's changes.
fn unpack_debian_source((name, version): (&str, &str), dir: &Path) -> Result<()> {
    ensure!(has_program("apt-get"), "there is no apt-get");
    let own = dir.join("apt");
    let sources = own.join("sources");
    for name in ["sources", "lists/partial", "archives/partial"] {
        fs::create_dir_all(own.join(name))?;
    }
    // Where the machine has its packages from, their sources are as well.
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

/// A list of places of packages, as a list of those of their sources.
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

/// Unpacks what is in the one directory of an archive.
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
