//! Tests of the files that `cargo xtask dist` makes, installed and used as a user would: the
//! archive below a prefix, and the Debian package by dpkg into a root of its own.

#![expect(clippy::expect_used, reason = "a test cannot go on without")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use testkit::{Home, binary, has_program, is_root, skip};

/// Directory of the packages. They are made once, from the binary under test without its symbols,
/// which are the largest part of a debug build.
fn made() -> &'static Path {
    static MADE: LazyLock<PathBuf> = LazyLock::new(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (program, out) = (dir.join("glovebox"), dir.join("dist"));
        run(Command::new("strip").arg(binary()).arg("-o").arg(&program));
        run(Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["dist", "--binary"])
            .arg(&program)
            .arg("--out")
            .arg(&out));
        out
    });
    &MADE
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("a program that starts");
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the only file in `dir` with this extension.
fn file(dir: &Path, extension: &str) -> PathBuf {
    let mut files = fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension() == Some(OsStr::new(extension)));
    let found = files.next().expect("a file");
    assert_eq!(files.next(), None);
    found
}

/// Checks that the installed program prints its version and runs a command in a sandbox.
fn is_used(home: &Home, program: &Path) {
    let installed = |line: &str| {
        let usual = home.line(line).command;
        let mut command = Command::new(program);
        command
            .args(usual.get_args())
            .env_clear()
            .envs(
                usual
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .current_dir(home.project());
        run(&mut command)
    };
    let version = installed("--version");
    assert!(version.starts_with("glovebox 0."), "{version}");
    assert_eq!(installed("run --quiet -- echo inside"), "inside\n");
}

#[test]
fn the_tar_unpacks_below_a_prefix_and_works() {
    let home = Home::new();
    let made = made();
    let prefix = home.root().join("prefix");
    fs::create_dir(&prefix).expect("a prefix");
    run(Command::new("tar")
        .args(["--strip-components=1", "-C"])
        .arg(&prefix)
        .arg("-xzf")
        .arg(file(made, "gz")));
    for path in [
        "share/man/man1/glovebox.1",
        "share/bash-completion/completions/glovebox",
        "share/zsh/vendor-completions/_glovebox",
        "share/fish/vendor_completions.d/glovebox.fish",
        "share/doc/glovebox/README.md",
        "share/doc/glovebox/LICENSE-MIT",
    ] {
        assert!(prefix.join(path).is_file(), "{path} is missing");
    }
    let licences = fs::read_to_string(prefix.join("share/doc/glovebox/THIRD-PARTY-LICENCES"));
    assert!(licences.expect("licences").contains("\nserde 1."));
    is_used(&home, &prefix.join("bin/glovebox"));
}

#[test]
fn the_debian_package_installs_upgrades_and_goes_again() {
    if !has_program("dpkg-deb") {
        skip!("Debian packages are made by dpkg-deb");
    }
    if !is_root() {
        skip!("dpkg installs as root only");
    }
    let home = Home::new();
    let package = file(made(), "deb");
    let owners = run(Command::new("dpkg-deb").arg("--contents").arg(&package));
    assert!(
        owners.lines().all(|line| line.contains(" root/root ")),
        "{owners}"
    );
    // The root contains only the database of dpkg.
    let root = home.root().join("root");
    for dir in ["info", "updates", "triggers"] {
        fs::create_dir_all(root.join("var/lib/dpkg").join(dir)).expect("a directory");
    }
    fs::write(root.join("var/lib/dpkg/status"), "").expect("a file");
    let dpkg = |action: &str, what: &OsStr| {
        run(Command::new("dpkg")
            .arg("--root")
            .arg(&root)
            // The C library is not in that root.
            .arg("--force-depends")
            .arg(action)
            .arg(what))
    };
    dpkg("--install", package.as_os_str());
    let program = root.join("usr/bin/glovebox");
    is_used(&home, &program);
    assert!(root.join("usr/share/man/man1/glovebox.1.gz").is_file());
    assert!(root.join("usr/share/doc/glovebox/copyright").is_file());

    let inode = |path: &Path| {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(path).expect("a file").ino()
    };
    let first = inode(&program);
    dpkg("--install", package.as_os_str());
    assert_ne!(inode(&program), first, "the upgrade put nothing in place");
    is_used(&home, &program);

    dpkg("--purge", OsStr::new("glovebox"));
    assert!(!program.exists());
    assert!(!root.join("usr/share/doc/glovebox").exists());
}
