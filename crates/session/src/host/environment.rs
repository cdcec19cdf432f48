//! Environment of commands, built from an allow-list.

use glovebox_settings::Surroundings;
use glovebox_spec::{Grant, RootFs, SANDBOX_USER, WORKSPACE};
use std::path::{Path, PathBuf};

/// Directories that every Linux system has, in the order of login programs.
const STANDARD_PATH: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// Trees of the host that [`RootFs::Host`] shows.
const PROGRAM_TREES: [&str; 7] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
];

/// Returns true if a host path is shown inside without any grant.
pub fn is_shown(rootfs: &RootFs, path: &Path) -> bool {
    match rootfs {
        RootFs::Host => PROGRAM_TREES.iter().any(|tree| path.starts_with(tree)),
        RootFs::HostAll => true,
        RootFs::Dir(_) => false,
    }
}

/// Returns the host's `PATH` in its own order, without directories that do not exist inside.
/// Directories of the project are mapped to `/workspace`.
pub fn visible_path(
    host: &Surroundings,
    rootfs: &RootFs,
    grants: &[Grant],
    project: Option<&Path>,
) -> String {
    let mut dirs: Vec<String> = Vec::new();
    let mut add = |dir: &Path| {
        if let Some(dir) = dir.to_str()
            && !dir.contains(':')
            && !dirs.iter().any(|known| known == dir)
        {
            dirs.push(dir.to_owned());
        }
    };
    let granted = |path: &Path| {
        let grant = grants
            .iter()
            .find(|grant| path.starts_with(&grant.source))?;
        Some(below(&grant.target, path.strip_prefix(&grant.source).ok()?))
    };
    let place = |path: &Path| -> Option<PathBuf> {
        if let Some(rest) = project.and_then(|project| path.strip_prefix(project).ok()) {
            return Some(below(Path::new(WORKSPACE), rest));
        }
        if is_shown(rootfs, path) {
            Some(path.to_owned())
        } else {
            granted(path)
        }
    };
    if !matches!(rootfs, RootFs::Dir(_)) {
        for dir in std::env::split_paths(host.var("PATH").unwrap_or_default()) {
            if !dir.is_absolute() || !dir.is_dir() {
                continue;
            }
            // Some version managers put a link in a run-time directory into PATH; then its target
            // is checked.
            let inside = place(&dir).or_else(|| place(&dir.canonicalize().ok()?));
            if let Some(inside) = inside {
                add(&inside);
            }
        }
    }
    for dir in STANDARD_PATH {
        add(Path::new(dir));
    }
    dirs.join(":")
}

/// Returns `base/rest`, without a trailing slash if `rest` is empty.
fn below(base: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() {
        base.to_owned()
    } else {
        base.join(rest)
    }
}

/// Returns the variables of every command in the sandbox. `home` is the home directory inside. The
/// user's variables come from [`super::passed_inside`].
pub fn base_environment(path: String, home: &Path) -> Vec<(String, String)> {
    let shell = if Path::new("/bin/bash").exists() {
        "/bin/bash"
    } else {
        "/bin/sh"
    };
    [
        ("PATH", path),
        ("HOME", home.to_string_lossy().into_owned()),
        ("USER", SANDBOX_USER.to_owned()),
        ("LOGNAME", SANDBOX_USER.to_owned()),
        ("SHELL", shell.to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Returns the variables of a carrier such as `ssh` or `docker`, with which it finds the other
/// machine. None of them is sent there; commands have the environment of that machine. Directories
/// of `PATH` inside the project are omitted, so that no program of a project is run as the carrier.
pub fn carrier_environment(host: &Surroundings, project: &Path) -> Vec<(String, String)> {
    let value = |name: &str| host.var(name)?.to_str().map(str::to_owned);
    let path = value("PATH").map(|path| {
        let dirs = std::env::split_paths(&path)
            .filter(|dir| dir.is_absolute() && !dir.starts_with(project));
        let dirs: Vec<String> = dirs.map(|dir| dir.display().to_string()).collect();
        ("PATH".to_owned(), dirs.join(":"))
    });
    let others = [
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "TERM",
        "SSH_AUTH_SOCK",
        "SSH_AGENT_PID",
        "DOCKER_HOST",
        "DOCKER_CONFIG",
        "DOCKER_CONTEXT",
        "KUBECONFIG",
        "XDG_RUNTIME_DIR",
        "XDG_CONFIG_HOME",
    ];
    let others = others
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), value(name)?)));
    path.into_iter().chain(others).collect()
}

/// Returns the variables of a command without isolation: the user's own identity, and otherwise the
/// same allow-list.
pub fn host_environment(host: &Surroundings) -> Vec<(String, String)> {
    let mut env: Vec<(String, String)> = [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "XDG_RUNTIME_DIR",
    ]
    .into_iter()
    .filter_map(|name| Some((name.to_owned(), host.var(name)?.to_str()?.to_owned())))
    .collect();
    env.extend(super::passed::passed_to_host(host));
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_keeps_its_order_and_loses_what_is_not_inside() {
        let temp = tempfile::tempdir().unwrap();
        let (tools, project) = (temp.path().join("tools/bin"), temp.path().join("project"));
        std::fs::create_dir_all(&tools).unwrap();
        std::fs::create_dir_all(project.join("node_modules/.bin")).unwrap();
        let link = temp.path().join("link");
        std::os::unix::fs::symlink(&tools, &link).unwrap();
        let hidden = temp.path().display();
        let path = format!(
            "{}/node_modules/.bin:{}:{}:{hidden}:/usr/bin:/nonexistent:relative::/usr/bin",
            project.display(),
            link.display(),
            tools.display(),
        );
        let host = Surroundings::fixed(temp.path(), &project, &[("PATH", &path)]);
        let grant = Grant {
            source: tools.clone(),
            target: "/tools".into(),
        };
        let shown = visible_path(&host, &RootFs::Host, &[grant], Some(&project));
        assert_eq!(
            shown,
            "/workspace/node_modules/.bin:/tools:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin"
        );
    }
}
