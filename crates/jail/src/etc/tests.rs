//! Tests of the rule on a directory like `/etc`: names that each part of it holds back, and similar
//! ones that are shown.

use super::*;
use std::os::unix::fs::{PermissionsExt as _, symlink};

/// Returns the shown names. A file is included only if its content may be shown.
fn shown(etc: &Path) -> Vec<String> {
    list(etc)
        .into_iter()
        .filter(|entry| {
            let is_file = matches!(entry.kind, EtcEntryKind::File { .. });
            !is_file || read_file(etc, &entry.name).is_ok()
        })
        .map(|entry| entry.name.display().to_string())
        .collect()
}

fn write(etc: &Path, name: &str, content: &str, mode: u32) {
    let path = etc.join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn make_dir(etc: &Path, name: &str, mode: u32) {
    fs::create_dir(etc.join(name)).unwrap();
    write(etc, &format!("{name}/file"), "a = b\n", 0o644);
    fs::set_permissions(etc.join(name), fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn files_for_all_are_shown_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let etc = dir.path();
    for (name, mode) in [
        ("plain", 0o644),
        ("program", 0o755),
        ("closed", 0o640),
        ("of-group", 0o664),
        ("of-all", 0o646),
        ("set-uid", 0o4755),
        ("set-gid", 0o2755),
        ("shadow", 0o644),
        ("server.key", 0o644),
    ] {
        write(etc, name, "a = b\n", mode);
    }
    write(etc, "with-secret", "a = b\napi_key = x\n", 0o644);
    make_dir(etc, "open", 0o755);
    make_dir(etc, "hidden", 0o750);
    make_dir(etc, "without-list", 0o751);
    make_dir(etc, "of-others", 0o777);
    make_dir(etc, "default", 0o755);
    write(etc, "default/locale", "LANG=C\n", 0o644);
    make_dir(etc, "systemd", 0o755);
    symlink("/nowhere", etc.join("dangling")).unwrap();
    symlink("closed", etc.join("link")).unwrap();
    rustix::fs::mknodat(
        CWD,
        etc.join("fifo"),
        rustix::fs::FileType::Fifo,
        Mode::from(0o644),
        0,
    )
    .unwrap();
    write(etc, "large", "", 0o644);
    let large = fs::File::options().write(true).open(etc.join("large"));
    large.unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();

    let expected: &[&str] = if rustix::process::geteuid().is_root() {
        &[
            "dangling",
            "default",
            "default/locale",
            "link",
            "open",
            "open/file",
            "plain",
            "program",
        ]
    } else {
        // The files belong to this user, not to root, so only links are shown.
        &["dangling", "link"]
    };
    assert_eq!(shown(etc), expected);
    let why = |name: &str| judge_path(etc, Path::new(name)).err();
    assert_eq!(why("shadow"), Some(HeldBackReason::Name));
    assert_eq!(why("systemd/file"), Some(HeldBackReason::Name));
    assert_eq!(why("closed"), Some(HeldBackReason::Permissions));
    assert_eq!(why("hidden/file"), Some(HeldBackReason::Permissions));
    assert_eq!(why("nothing"), None);
    if rustix::process::geteuid().is_root() {
        assert_eq!(why("large"), Some(HeldBackReason::Size));
        let secret = HeldBackReason::Secret(SecretKind::Value);
        assert_eq!(why("with-secret"), Some(secret));
        assert_eq!(why("open/file"), None);
    }
}

#[test]
fn stamp_changes_with_content_permissions_and_names() {
    let dir = tempfile::tempdir().unwrap();
    let etc = dir.path();
    write(etc, "settings", "a = b\n", 0o644);
    symlink("a", etc.join("link")).unwrap();
    let mut last = stamp(etc);
    assert_eq!(stamp(etc), last);
    let mut has_changed = |what: &str| {
        let now = stamp(etc);
        assert_ne!(now, last, "{what}");
        last = now;
    };
    fs::remove_file(etc.join("link")).unwrap();
    symlink("b", etc.join("link")).unwrap();
    has_changed("a link");
    if rustix::process::geteuid().is_root() {
        write(etc, "settings", "password = x\n", 0o644);
        has_changed("a secret");
        assert_eq!(shown(etc), ["link"]);
        write(etc, "settings", "password = x\n", 0o600);
        has_changed("a mode");
    }
}
