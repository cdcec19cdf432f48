//! Builds the static programs for the inside (the guest and the one that runs scripts) with their
//! own profiles and flags, and writes them compressed with their hashes to `OUT_DIR`, for
//! `src/image` to embed.
//!
//! The nested cargo has its own target directory, so it never waits for the outer cargo's lock on
//! the build directory. All outer builds share it, so that `check`, `clippy`, `build` and `test`
//! compile the programs once. The nested cargo gets none of the outer flags and wrappers (coverage,
//! clippy, `target-cpu`): the guest is the same program however the host side is built.
//!
//! If the toolchain has the musl target, the guest is linked with musl. The program then has half
//! the size, starts in a quarter of the time (glibc queries the processor for its caches before
//! `main`, and on a virtual machine each query goes to the hypervisor) and shares more of its
//! memory. Otherwise it is linked with a static glibc and behaves the same.
//!
//! The guest is loaded at the address that it was linked for. At another address it would first
//! relocate 200 KiB of itself in every sandbox. A secret address would protect nothing, because
//! code that runs in the guest could as well run a command. A script, however, can do only what its
//! calls are permitted to, so the program that runs scripts is position-independent.
//!
//! In a debug build both programs use the profile `guest-quick`: larger and slower, but compiled in
//! a fraction of the time, for a developer's inner loop. `GLOVEBOX_GUEST_PROFILE` overrides this:
//! `shipped` is the profile of `cargo xtask test` and of every release build, `quick` is the other
//! one.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// A program for the inside. The package and the binary have the same name.
struct Program {
    package: &'static str,
    profile: &'static str,
    /// Value of rustc's `relocation-model`.
    relocation_model: &'static str,
    /// First part of the names of the environment variables that describe it.
    prefix: &'static str,
}

const GUEST: Program = Program {
    package: "glovebox-guest",
    profile: "guest",
    relocation_model: "static",
    prefix: "GUEST",
};
const SCRIPTS: Program = Program {
    package: "glovebox-js",
    profile: "scripts",
    relocation_model: "pic",
    prefix: "SCRIPTS",
};

/// Variable that selects the programs' own profiles (`shipped`) or [`QUICK_PROFILE`] (`quick`).
const CHOICE: &str = "GLOVEBOX_GUEST_PROFILE";
const QUICK_PROFILE: &str = "guest-quick";
/// Compression levels of zstd: the smallest result within seconds, or the fastest.
const LEVEL: i32 = 19;
const QUICK_LEVEL: i32 = 1;

/// Error of the build. The runtime prints it with `{:?}` if `main` fails, so it has no quotes or
/// escapes.
struct Failure(String);

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn main() -> Result<(), Failure> {
    let here = variable("CARGO_MANIFEST_DIR")?;
    let out_dir = variable("OUT_DIR")?;
    let is_quick = is_quick()?;
    let target = variable("TARGET")?.into_os_string();
    let root = here
        .ancestors()
        .nth(2)
        .ok_or_else(|| Failure("no workspace root".into()))?;

    let lock = root.join("Cargo.lock");
    for input in [
        "crates/gitignore",
        "crates/guest",
        "crates/js",
        "crates/jail",
        "crates/proto",
        "crates/spec",
        "Cargo.toml",
        "Cargo.lock",
    ] {
        println!("cargo::rerun-if-changed={}", root.join(input).display());
    }

    let target = musl_sibling(&target).unwrap_or(target);
    // OUT_DIR is TARGET/PROFILE/build/PACKAGE-HASH/out.
    let dir = out_dir
        .ancestors()
        .nth(4)
        .ok_or_else(|| Failure("no target directory around OUT_DIR".into()))?
        .join("guest");
    let embed = |program: &Program| {
        let (profile, level) = if is_quick {
            (QUICK_PROFILE, QUICK_LEVEL)
        } else {
            (program.profile, LEVEL)
        };
        let path = build(program, profile, root, &dir, &target, lock.exists())?;
        let bytes = fs::read(&path)
            .map_err(|error| Failure(format!("cannot read {}: {error}", path.display())))?;
        let packed = out_dir.join(format!("{}.zst", program.package));
        write_if_new(&packed, &compress(&bytes, level)?)?;
        for (name, value) in [
            ("BYTES", bytes.len().to_string()),
            ("BLAKE3", blake3::hash(&bytes).to_hex().to_string()),
            ("SHA256", sha256_hex(&bytes)),
        ] {
            let prefix = program.prefix;
            println!("cargo::rustc-env=GLOVEBOX_{prefix}_{name}={value}");
        }
        Ok(())
    };
    // In parallel: most of each build is one link that optimises the whole program on one
    // processor, and everything that depends on this crate waits for both.
    thread::scope(|scope| {
        let scripts = scope.spawn(|| embed(&SCRIPTS));
        embed(&GUEST)?;
        let is_panic = |_| Err(Failure("the build of the scripts' program panicked".into()));
        scripts.join().unwrap_or_else(is_panic)
    })
}

/// Returns true if the programs are compiled fast rather than small. Debug builds do so unless
/// [`CHOICE`] is set.
fn is_quick() -> Result<bool, Failure> {
    println!("cargo::rerun-if-env-changed={CHOICE}");
    match std::env::var_os(CHOICE) {
        None => Ok(variable("PROFILE")?.as_os_str() == "debug"),
        Some(choice) if choice == "quick" => Ok(true),
        Some(choice) if choice == "shipped" => Ok(false),
        Some(choice) => Err(Failure(format!(
            "{CHOICE} is {}; it is `quick` or `shipped`",
            choice.display()
        ))),
    }
}

fn variable(name: &str) -> Result<PathBuf, Failure> {
    std::env::var_os(name)
        .map(PathBuf::from)
        .ok_or_else(|| Failure(format!("cargo did not set {name} for the build script")))
}

/// Returns the musl target of the same machine. `None` if the toolchain lacks its standard library.
fn musl_sibling(target: &OsStr) -> Option<OsString> {
    let musl = target
        .to_str()?
        .strip_suffix("-gnu")
        .map(|machine| OsString::from(format!("{machine}-musl")))?;
    println!("cargo::rerun-if-env-changed=RUSTUP_TOOLCHAIN");
    let rustc = std::env::var_os("RUSTC")?;
    let asked = Command::new(rustc)
        .args(["--print", "target-libdir", "--target"])
        .arg(&musl)
        .output()
        .ok()?;
    let libdir = PathBuf::from(OsStr::from_bytes(asked.stdout.trim_ascii_end()));
    // rustc prints the directory whether or not it exists.
    (asked.status.success() && libdir.is_dir()).then_some(musl)
}

fn build(
    program: &Program,
    profile: &str,
    root: &Path,
    dir: &Path,
    target: &OsStr,
    is_locked: bool,
) -> Result<PathBuf, Failure> {
    let mut cargo = Command::new(variable("CARGO")?);
    cargo.args([
        "build",
        "--package",
        program.package,
        "--bin",
        program.package,
    ]);
    cargo
        .args([
            "--profile",
            profile,
            "--quiet",
            "--color",
            "never",
            "--target",
        ])
        .arg(target);
    cargo
        .arg("--target-dir")
        .arg(dir)
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"));
    if is_locked {
        cargo.arg("--locked");
    }
    for (name, _) in std::env::vars_os() {
        if !is_passed_on(&name.to_string_lossy()) {
            cargo.env_remove(name);
        }
    }
    let relocation_model = format!("-Crelocation-model={}", program.relocation_model);
    let mut flags = vec!["-Ctarget-feature=+crt-static", &relocation_model];
    if target.as_bytes().ends_with(b"-musl") {
        // Packs the relocations that the program applies before `main` into a few kilobytes instead
        // of 220, which every start would read. A linker without the option warns and continues.
        flags.push("-Clink-arg=-Wl,-z,pack-relative-relocs");
        // C and assembler code of dependencies needs no separate compiler for musl: it calls only
        // functions that every C library has under the same name.
        let name = target.to_string_lossy().replace('-', "_");
        for (variable, value) in [("CC", "cc"), ("CFLAGS", "-U_FORTIFY_SOURCE")] {
            let variable = format!("{variable}_{name}");
            if std::env::var_os(&variable).is_none() {
                cargo.env(variable, value);
            }
        }
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    cargo.current_dir(root);
    let package = program.package;
    let output = cargo
        .output()
        .map_err(|error| Failure(format!("cannot run cargo for {package}: {error}")))?;
    if !output.status.success() {
        return Err(Failure(format!(
            "{package} does not build:\n\n{}\nTo see it alone: cargo build -p {package}",
            String::from_utf8_lossy(&output.stderr)
        )));
    }
    Ok(dir.join(target).join(profile).join(package))
}

/// Returns true if the nested cargo gets a variable: those that locate crates and tools, and none
/// that describes the outer build.
fn is_passed_on(name: &str) -> bool {
    const OUTER: &[&str] = &[
        "OUT_DIR",
        "TARGET",
        "HOST",
        "PROFILE",
        "OPT_LEVEL",
        "DEBUG",
        "NUM_JOBS",
        "RUSTFLAGS",
        "RUSTDOCFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_LINKER",
        "LLVM_PROFILE_FILE",
        "CLIPPY_ARGS",
        "CLIPPY_CONF_DIR",
    ];
    const CARGO_PREFIXES: &[&str] = &[
        "CARGO_HOME",
        "CARGO_HTTP_",
        "CARGO_NET_",
        "CARGO_REGISTRIES_",
        "CARGO_REGISTRY_",
        "CARGO_SOURCE_",
        "CARGO_MAKEFLAGS",
        "CARGO_TARGET_X86_64",
        "CARGO_TARGET_AARCH64",
    ];
    if name.starts_with("CARGO") {
        return CARGO_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            && !name.ends_with("_RUSTFLAGS")
            && !name.ends_with("_RUNNER");
    }
    !OUTER.contains(&name) && !name.starts_with("DEP_")
}

fn compress(bytes: &[u8], level: i32) -> Result<Vec<u8>, Failure> {
    let mut packed = vec![0; zstd_safe::compress_bound(bytes.len())];
    let len = zstd_safe::compress(packed.as_mut_slice(), bytes, level).map_err(|code| {
        let why = zstd_safe::get_error_name(code);
        Failure(format!("zstd cannot compress a program: {why}"))
    })?;
    packed.truncate(len);
    Ok(packed)
}

fn sha256_hex(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Writes a file only if its content changes, so that nothing is compiled again for an equal file.
fn write_if_new(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::write(path, bytes)
        .map_err(|error| Failure(format!("cannot write {}: {error}", path.display())))
}
