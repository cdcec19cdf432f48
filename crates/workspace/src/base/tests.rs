//! The index of a project, and which paths count as changed.

use super::*;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{SystemTime, UNIX_EPOCH};

fn now_ns() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos()
}

fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

fn signature(root: &Path, name: &str) -> Signature {
    stat_at(
        rustix::fs::CWD,
        root.join(name).as_os_str().as_encoded_bytes(),
    )
    .map_or(Signature::Absent, |stat| Signature::from(&stat))
}

#[test]
fn changes_of_the_host_are_noticed() {
    let temp = tempfile::tempdir().unwrap();
    let project = temp.path().join("project");
    let index = temp.path().join("base");
    fs::create_dir_all(project.join("dir/sub")).unwrap();
    fs::create_dir_all(project.join(".git")).unwrap();
    for name in [
        "same",
        "edited",
        "mode",
        "replaced",
        "gone",
        "dir/in",
        ".git/config",
    ] {
        fs::write(project.join(name), "1").unwrap();
    }
    symlink("same", project.join("link")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let pushed = now_ns();
    let count = record(&project, &index, pushed, &|| false).unwrap();
    assert_eq!(count, 9);

    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(project.join("edited"), "2").unwrap();
    fs::set_permissions(project.join("mode"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(project.join("same"), project.join("was-same")).unwrap();
    fs::write(project.join("same"), "1").unwrap();
    fs::remove_file(project.join("gone")).unwrap();
    fs::write(project.join("dir/new"), "1").unwrap();
    let expected = [
        ("same", HostChange::Changed),
        ("edited", HostChange::Changed),
        ("mode", HostChange::Changed),
        ("replaced", HostChange::Same),
        ("gone", HostChange::Changed),
        ("dir", HostChange::Same),
        ("dir/sub", HostChange::Same),
        ("dir/in", HostChange::Same),
        ("dir/new", HostChange::Added),
        ("link", HostChange::Same),
        ("never", HostChange::Same),
    ];
    let wanted: BTreeSet<RelPath> = expected.iter().map(|(name, _)| path(name)).collect();
    let base = Base::load(&index, pushed, &wanted);
    for (name, since) in expected {
        let now = signature(&project, name);
        assert_eq!(base.since(&path(name), &now), since, "{name}");
    }
    // Without an index only the times decide.
    let base = Base::load(&temp.path().join("none"), pushed, &wanted);
    for (name, since) in expected {
        let now = signature(&project, name);
        let is_known = since == HostChange::Same || now == Signature::Absent;
        let expected = if is_known {
            HostChange::Same
        } else {
            HostChange::Changed
        };
        assert_eq!(base.since(&path(name), &now), expected, "{name}");
    }
    // A version that a pull wrote is the new base.
    let noted = ["edited", "gone", "dir/new"].map(|name| (path(name), signature(&project, name)));
    advance(&index, noted.to_vec()).unwrap();
    advance(&index, vec![(path("mode"), signature(&project, "mode"))]).unwrap();
    let base = Base::load(&index, pushed, &wanted);
    for name in ["edited", "gone", "dir/new", "mode"] {
        assert_eq!(
            base.since(&path(name), &signature(&project, name)),
            HostChange::Same,
            "{name}"
        );
    }
    fs::write(project.join("gone"), "again").unwrap();
    assert_eq!(
        base.since(&path("gone"), &signature(&project, "gone")),
        HostChange::Added
    );
}

#[test]
fn an_unfinished_index_is_none() {
    let temp = tempfile::tempdir().unwrap();
    let project = temp.path().join("project");
    let index = temp.path().join("base");
    fs::create_dir(&project).unwrap();
    fs::write(project.join("file"), "1").unwrap();
    let fault = record(&project, &index, 0, &|| true).unwrap_err();
    assert_eq!(fault.code, Code::Cancelled);
    assert!(!index.exists() && fs::read_dir(temp.path()).unwrap().count() == 1);

    record(&project, &index, now_ns(), &|| false).unwrap();
    let bytes = fs::read(&index).unwrap();
    for length in 0..bytes.len() {
        assert!(decode(&bytes[..length], |_, _| true).is_err(), "{length}");
    }
    assert_eq!(decode(bytes.as_slice(), |_, _| true).unwrap(), 1);
}

proptest! {
    #[test]
    fn what_is_written_is_read(entries in proptest::collection::btree_map(
        "[a-c/.]{1,8}", any::<(u64, u32, i64, i64, u64, u8)>(), 0..40)) {
        let mut sorted = BTreeMap::new();
        for (name, (size, mode, mtime_ns, ctime_ns, ino, kind)) in entries {
            let Ok(path) = RelPath::new(name) else { continue };
            let kind = match kind % 5 {
                0 => { sorted.insert(path, Signature::Absent); continue; }
                1 => Kind::File, 2 => Kind::Link, 3 => Kind::Dir, _ => Kind::Other,
            };
            sorted.insert(path, Signature::Present { kind, size, mode, mtime_ns, ctime_ns, ino });
        }
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 7).unwrap();
        for (path, signature) in &sorted {
            encoder.put(path, signature).unwrap();
        }
        encoder.finish().unwrap();
        let mut read = BTreeMap::new();
        decode(bytes.as_slice(), |path, signature| {
            read.insert(path.clone(), signature);
            true
        }).unwrap();
        prop_assert_eq!(read, sorted);
    }

    #[test]
    fn any_bytes_are_read_without_harm(tail in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = b"GLVBASE\x01".to_vec();
        bytes.extend_from_slice(&[0; 16]);
        bytes.extend(tail);
        let _ = decode(bytes.as_slice(), |_, _| true);
    }
}
