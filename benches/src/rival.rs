//! What users run today: a plain process, bubblewrap, crun.

use crate::timer::Timer;
use anyhow::{Context as _, Result, bail};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Absolute path of a program, so that nobody is charged for searching `PATH`.
pub(crate) fn find(name: &str) -> Result<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .map(|dir| dir.join(name))
        .find(|path| {
            path.metadata()
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
        .with_context(|| format!("`{name}` is not installed"))
}

/// Runs a prepared command to its end without any output.
pub(crate) fn run_once(command: &mut Command) -> Result<Duration> {
    let began = Instant::now();
    let status = command.status()?;
    let taken = began.elapsed();
    if status.success() {
        Ok(taken)
    } else {
        bail!("{status}")
    }
}

/// A command that says nothing and hears nothing.
pub(crate) fn quiet(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// bubblewrap with the isolation its users choose for untrusted commands.
pub(crate) fn bubblewrap(command: &[&str]) -> Result<Command> {
    let mut bwrap = quiet(&find("bwrap")?);
    bwrap.args([
        "--unshare-all",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--tmpfs",
        "/tmp",
    ]);
    bwrap.args(["--new-session", "--die-with-parent", "--cap-drop", "ALL"]);
    bwrap.args(command);
    Ok(bwrap)
}

/// crun without control groups, on a bundle made for it.
pub(crate) fn crun(dir: &Path, command: &[&str]) -> Result<Timer> {
    let crun = find("crun")?;
    let bundle = dir.join("bundle");
    let rootfs = bundle.join("rootfs");
    let shown: Vec<&str> = ["usr", "bin", "sbin", "lib", "lib64"]
        .into_iter()
        .filter(|name| Path::new("/").join(name).exists())
        .collect();
    for name in shown.iter().chain(&["proc", "dev", "tmp"]) {
        std::fs::create_dir_all(rootfs.join(name))?;
    }
    let binds: Vec<_> = shown
        .iter()
        .map(|name| {
            let path = format!("/{name}");
            serde_json::json!({"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro"]})
        })
        .collect();
    let mut mounts = vec![
        serde_json::json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        serde_json::json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}),
        serde_json::json!({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]}),
    ];
    mounts.extend(binds);
    let namespaces: Vec<_> = ["pid", "network", "ipc", "uts", "mount"]
        .into_iter()
        .map(|kind| serde_json::json!({"type": kind}))
        .collect();
    let config = serde_json::json!({
        "ociVersion": "1.0.0",
        "process": {
            "terminal": false, "user": {"uid": 0, "gid": 0}, "args": command, "cwd": "/",
            "env": ["PATH=/usr/bin:/bin"], "noNewPrivileges": true,
        },
        "root": {"path": "rootfs", "readonly": true},
        "mounts": mounts,
        "linux": {"namespaces": namespaces},
    });
    std::fs::write(bundle.join("config.json"), serde_json::to_vec(&config)?)?;
    let mut words: Vec<OsString> = vec![
        crun.into(),
        "--cgroup-manager=disabled".into(),
        "--root".into(),
    ];
    words.push(dir.join("crun").into());
    words.extend([
        "run".into(),
        "--bundle".into(),
        bundle.into(),
        "glovebox-bench".into(),
    ]);
    // crun 1.8 refuses machines with both versions of control groups.
    Timer::start("umount -l /sys/fs/cgroup/unified 2>/dev/null", &words)
}
