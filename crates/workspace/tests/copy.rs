//! Copy mode with a real guest: a project is pushed, a second push sends only differences, the
//! sandbox's work is never overwritten, and its changes are collected as from layers.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod sandboxes;

use glovebox_proto::{Code, Exec};
use glovebox_workspace::copy::PushOptions;
use glovebox_workspace::{ChangeKind, CollectedChanges, Node, Quota, RelPath, Stage};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sandboxes::{Copy, all, lines, refusals, tree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

/// The collected content of a file.
fn text_of(collected: &CollectedChanges, path: &str) -> String {
    let mut text = String::new();
    let mut file = collected.open(&RelPath::new(path).unwrap()).unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_project_arrives_as_it_is_and_the_second_push_sends_what_differs() {
    let copy = Copy::host();
    copy.project("src/main.rs", "fn main() {}\n");
    copy.project("run.sh", "#!/bin/sh\n");
    copy.project("empty", "");
    copy.project_bytes(b"odd\xff\n name", b"bytes");
    copy.project("large", &"0123456789abcdef".repeat(50_000));
    fs::create_dir_all(copy.project_dir().join("hollow/dir")).unwrap();
    symlink("src/main.rs", copy.project_dir().join("link")).unwrap();
    symlink("/etc/passwd", copy.project_dir().join("out")).unwrap();
    let run = copy.project_dir().join("run.sh");
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
    copy.age_project();

    let pushed = copy.push();
    assert_eq!((pushed.files, pushed.made), (5, 5), "{pushed:?}");
    assert_eq!(pushed.bytes, 13 + 10 + 5 + 800_000);
    assert_eq!(tree(&copy.inside_dir()), tree(&copy.project_dir()));
    let time = |dir: &Path| fs::metadata(dir.join("large")).unwrap().mtime();
    assert_eq!(time(&copy.inside_dir()), time(&copy.project_dir()));

    let pushed = copy.push();
    assert_eq!((pushed.files, pushed.made, pushed.deleted), (0, 0, 0));
    assert_eq!(pushed.unchanged, 10, "{pushed:?}");

    copy.project("src/main.rs", "fn main() { }\n");
    copy.project("new/file", "n");
    fs::remove_file(copy.project_dir().join("empty")).unwrap();
    fs::remove_dir_all(copy.project_dir().join("hollow")).unwrap();
    fs::remove_file(copy.project_dir().join("link")).unwrap();
    symlink("run.sh", copy.project_dir().join("link")).unwrap();
    fs::set_permissions(&run, fs::Permissions::from_mode(0o644)).unwrap();
    let pushed = copy.push();
    assert_eq!((pushed.files, pushed.made, pushed.deleted), (3, 2, 3));
    assert_eq!(tree(&copy.inside_dir()), tree(&copy.project_dir()));
    assert_eq!(lines(&copy.collect()), [] as [&str; 0]);
}

#[test]
fn kinds_that_change_places_do() {
    let copy = Copy::host();
    copy.project("to-dir", "file");
    copy.project("to-file/deep/er/x", "1");
    copy.project("to-file/y", "2");
    symlink("to-dir", copy.project_dir().join("to-real")).unwrap();
    copy.push();
    fs::remove_file(copy.project_dir().join("to-dir")).unwrap();
    copy.project("to-dir/below", "b");
    fs::remove_dir_all(copy.project_dir().join("to-file")).unwrap();
    copy.project("to-file", "file");
    fs::remove_file(copy.project_dir().join("to-real")).unwrap();
    copy.project("to-real", "real");
    let pushed = copy.push();
    assert!(pushed.conflicts.is_empty(), "{pushed:?}");
    assert_eq!(tree(&copy.inside_dir()), tree(&copy.project_dir()));
    assert_eq!(lines(&copy.collect()), [] as [&str; 0]);
}

#[test]
fn the_sandboxs_own_work_is_never_overwritten() {
    let copy = Copy::host();
    for path in [
        "both",
        "theirs",
        "ours",
        "same",
        "gone-here",
        "gone-there",
        "dir/one",
    ] {
        copy.project(path, "old");
    }
    copy.push();
    copy.inside("both", "theirs");
    copy.inside("theirs", "theirs");
    copy.inside("same", "equal");
    copy.inside("gone-here", "theirs");
    copy.inside("own/file", "own");
    copy.inside("dir/own", "own");
    fs::remove_file(copy.inside_dir().join("gone-there")).unwrap();
    copy.project("both", "ours");
    copy.project("ours", "ours");
    copy.project("same", "equal");
    copy.project("gone-there", "ours");
    fs::remove_file(copy.project_dir().join("gone-here")).unwrap();
    fs::remove_dir_all(copy.project_dir().join("dir")).unwrap();
    let pushed = copy.push();
    let conflicts: Vec<String> = pushed.conflicts.iter().map(ToString::to_string).collect();
    assert_eq!(conflicts, ["both", "gone-here", "gone-there"]);
    assert_eq!(pushed.files, 1, "{pushed:?}");
    let read = |path: &str| fs::read_to_string(copy.inside_dir().join(path)).ok();
    let read = |path: &str| read(path).unwrap_or_default();
    assert_eq!(
        [
            "both",
            "theirs",
            "ours",
            "same",
            "gone-here",
            "own/file",
            "dir/own",
            "dir/one"
        ]
        .map(read),
        [
            "theirs", "theirs", "ours", "equal", "theirs", "own", "own", ""
        ]
    );
    // A path that both sides changed is still a change of the sandbox.
    assert_eq!(
        lines(&copy.collect()),
        [
            "M both",
            "A dir",
            "A dir/own",
            "A gone-here",
            "D gone-there",
            "A own",
            "A own/file",
            "M theirs"
        ]
    );

    let pushed = copy.push_with(PushOptions {
        overwrite: true,
        ..PushOptions::default()
    });
    assert_eq!(pushed.files, 2, "{pushed:?}");
    assert_eq!(
        ["both", "gone-there", "theirs"].map(read),
        ["ours", "ours", "theirs"]
    );
}

#[test]
fn a_first_push_into_something_adopts_what_is_the_same() {
    let copy = Copy::host();
    copy.project("same", "same");
    copy.project("other", "ours");
    copy.project("new", "new");
    copy.inside("same", "same");
    copy.inside("other", "them");
    copy.inside("own", "own");
    let pushed = copy.push();
    assert_eq!(pushed.files, 1);
    assert_eq!(pushed.conflicts.len(), 1);
    assert_eq!(lines(&copy.collect()), ["M other", "A own"]);
}

#[test]
fn what_is_hidden_does_not_go_in_and_does_not_come_back() {
    let mut copy = Copy::host();
    copy.project(".env", "SECRET=1");
    copy.project("node_modules/x/y", "z");
    copy.project("conf/key.pem", "key");
    copy.project("conf/open", "o");
    copy.hide(&[".env", "node_modules", "conf/key.pem"]);
    let pushed = copy.push();
    assert_eq!(pushed.hidden, 3);
    assert_eq!(tree(&copy.inside_dir()).len(), 2);
    copy.inside(".env", "FORGED=1");
    fs::remove_dir_all(copy.inside_dir().join("conf")).unwrap();
    let collected = copy.collect();
    assert_eq!(lines(&collected), ["D conf/open"]);
    assert_eq!(refusals(&collected), [".env Excluded"]);
}

#[test]
fn a_fifo_and_what_cannot_be_read_are_named_and_never_opened() {
    let copy = Copy::host();
    copy.project("file", "f");
    Copy::fifo(&copy.project_dir().join("pipe"));
    copy.push();
    let pushed = copy.push();
    assert_eq!(pushed.skipped.len(), 1, "{pushed:?}");
    Copy::fifo(&copy.inside_dir().join("theirs"));
    fs::remove_file(copy.inside_dir().join("file")).unwrap();
    Copy::fifo(&copy.inside_dir().join("file"));
    let _socket = std::os::unix::net::UnixListener::bind(copy.inside_dir().join("sock")).unwrap();
    let collected = copy.collect();
    assert_eq!(lines(&collected), [] as [&str; 0]);
    assert_eq!(
        refusals(&collected),
        ["file Special", "sock Special", "theirs Special"]
    );
}

#[test]
fn contents_are_those_of_the_moment_they_were_collected() {
    let copy = Copy::host();
    copy.project("edit", "old\n");
    copy.push();
    copy.inside("edit", "new\n");
    copy.inside("large", &"x".repeat(3_000_000));
    let collected = copy.collect();
    copy.inside("edit", "later\n");
    fs::remove_file(copy.inside_dir().join("large")).unwrap();
    assert_eq!(text_of(&collected, "edit"), "new\n");
    assert_eq!(text_of(&collected, "large").len(), 3_000_000);
    let spool = copy.spool_dir();
    assert_eq!(fs::read_dir(&spool).unwrap().count(), 1);
    let mode = fs::read_dir(&spool).unwrap().next().unwrap().unwrap();
    assert_eq!(mode.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    drop(collected);
    assert_eq!(fs::read_dir(&spool).unwrap().count(), 0);
}

#[test]
fn a_change_that_keeps_size_and_time_is_found() {
    let copy = Copy::host();
    copy.project("file", "before");
    copy.age_project();
    copy.push();
    let inside = copy.inside_dir().join("file");
    let old = fs::metadata(&inside).unwrap().modified().unwrap();
    fs::write(&inside, "after!").unwrap();
    fs::File::options()
        .write(true)
        .open(&inside)
        .unwrap()
        .set_modified(old)
        .unwrap();
    assert_eq!(lines(&copy.collect()), ["M file"]);
    // The same on the host's side.
    let copy = Copy::host();
    copy.project("file", "before");
    copy.age_project();
    copy.push();
    copy.project("file", "after!");
    copy.age_project();
    assert_eq!(copy.push().files, 1);
}

#[test]
fn quotas_hold() {
    let mut copy = Copy::host();
    copy.push();
    for number in 0..20 {
        copy.inside(&format!("file{number}"), &"x".repeat(1000));
    }
    copy.inside("a/b/c/d/e", "deep");
    copy.quota = Quota {
        max_bytes: 15_000,
        ..Quota::default()
    };
    let error = copy.try_collect().unwrap_err();
    assert_eq!(
        (error.stage, error.fault.code),
        (Stage::Transfer, Code::TooLarge)
    );
    copy.quota = Quota {
        max_changes: 10,
        ..Quota::default()
    };
    let error = copy.try_collect().unwrap_err();
    assert_eq!(error.fault.code, Code::TooLarge);
    let told = &error.fault.message;
    assert!(
        told.starts_with("more than 10 paths changed, most of them in `"),
        "{told}"
    );
    copy.quota = Quota {
        max_depth: 3,
        ..Quota::default()
    };
    let collected = copy.collect();
    assert_eq!(refusals(&collected), ["a/b/c TooDeep"]);
    let sparse = fs::File::create(copy.inside_dir().join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    copy.quota = Quota {
        max_bytes: 1 << 20,
        ..Quota::default()
    };
    assert_eq!(copy.try_collect().unwrap_err().fault.code, Code::TooLarge);
}

#[test]
fn a_cancelled_push_leaves_whole_files_only_and_can_be_repeated() {
    let copy = Copy::host();
    for number in 0..3000 {
        copy.project(
            &format!("dir{}/file{number}", number % 10),
            &"x".repeat(5000),
        );
    }
    for patience in [0, 1, 3, 10] {
        let mut reports = 0;
        let result = copy.push_watched(PushOptions::default(), &mut |_| {
            reports += 1;
            if reports > patience {
                std::ops::ControlFlow::Break(())
            } else {
                std::ops::ControlFlow::Continue(())
            }
        });
        if let Err(error) = result {
            assert_eq!(error.fault.code, Code::Cancelled, "{error}");
        }
        // The guest has replied, so its directory no longer changes.
        for (path, content) in tree(&copy.inside_dir()) {
            assert!(!path.contains(".glovebox."), "{path}");
            assert!(
                content == "dir" || content.len() > 5000,
                "{path}: {}",
                content.len()
            );
        }
        copy.sandbox.ping().unwrap();
    }
    copy.push();
    assert_eq!(tree(&copy.inside_dir()), tree(&copy.project_dir()));
    assert_eq!(fs::read_dir(copy.spool_dir()).unwrap().count(), 0);
}

#[test]
fn a_failure_inside_names_the_path() {
    let copy = Copy::host();
    copy.project("a", "1");
    copy.project("b/c", "2");
    copy.push();
    copy.project("b/c", "3");
    fs::remove_file(copy.inside_dir().join("b/c")).unwrap();
    fs::remove_dir(copy.inside_dir().join("b")).unwrap();
    symlink("/tmp", copy.inside_dir().join("b")).unwrap();
    // A directory that became a link is the sandbox's work: it stays, and nothing is written
    // through it.
    let pushed = copy.push();
    assert_eq!(pushed.files, 0, "{pushed:?}");
    assert!(!Path::new("/tmp/c").exists());
    assert!(copy.inside_dir().join("b").is_symlink());
}

#[test]
fn a_full_disk_inside_is_said_and_leaves_nothing_half_written() {
    if !testkit::is_root() {
        testkit::skip_because!(testkit::SkipReason::needs_root(
            "to mount a small file system"
        ));
    }
    let copy = Copy::host();
    let small = copy.inside_dir();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "none"])
        .arg(&small)
        .status()
        .unwrap();
    assert!(mounted.success());
    let copy = copy.at(&small);
    copy.project("fits", &"x".repeat(1000));
    copy.project("too-large", &"x".repeat(3_000_000));
    let error = copy
        .push_watched(PushOptions::default(), &mut |_| {
            std::ops::ControlFlow::Continue(())
        })
        .unwrap_err();
    let found = tree(&small);
    let unmounted = std::process::Command::new("umount")
        .arg("-l")
        .arg(&small)
        .status();
    assert!(unmounted.unwrap().success());
    assert_eq!(error.fault.code, Code::NoSpace, "{error}");
    assert!(error.fault.message.contains("too-large"), "{error}");
    assert_eq!(found.keys().collect::<Vec<_>>(), ["fits"]);
}

#[test]
fn a_lost_sandbox_is_said_and_the_manifest_stays() {
    let copy = Copy::host();
    copy.project("a", "1");
    copy.push();
    let manifest = fs::read(copy.manifest()).unwrap();
    for number in 0..2000 {
        copy.project(&format!("f{number}"), &"x".repeat(20_000));
    }
    let pid = copy.guest_pid();
    let mut has_killed = false;
    let result = copy.push_watched(PushOptions::default(), &mut |_| {
        if !std::mem::replace(&mut has_killed, true) {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        std::ops::ControlFlow::Continue(())
    });
    let error = result.unwrap_err();
    assert_eq!(error.fault.class, glovebox_proto::Class::Lost, "{error}");
    assert_eq!(fs::read(copy.manifest()).unwrap(), manifest);
}

#[test]
fn any_edits_on_both_sides_come_to_what_the_model_says() {
    let copy = Copy::host();
    let name = prop_oneof![
        Just("a"),
        Just("b"),
        Just("d/a"),
        Just("d/b"),
        Just("d/e/a")
    ];
    let edit = (name, prop_oneof![Just(None), "[xy]{0,2}".prop_map(Some)]);
    let edits = proptest::collection::vec(edit, 0..8);
    let mut runner = TestRunner::new(Config {
        cases: 40,
        ..Config::default()
    });
    type Edits = Vec<(&'static str, Option<String>)>;
    let apply = |root: &Path, model: &mut BTreeMap<String, String>, edits: &Edits| {
        for (path, text) in edits {
            let full = root.join(path);
            if let Some(text) = text {
                fs::create_dir_all(full.parent().unwrap()).unwrap();
                fs::write(full, text).unwrap();
                model.insert((*path).to_owned(), text.clone());
            } else {
                let _ = fs::remove_file(full);
                model.remove(*path);
            }
        }
    };
    let result = runner.run(
        &(edits.clone(), edits.clone(), edits),
        |(first, ours, theirs)| {
            copy.reset();
            let mut base = BTreeMap::new();
            apply(&copy.project_dir(), &mut base, &first);
            copy.push();
            let (mut host, mut inside) = (base.clone(), base.clone());
            apply(&copy.project_dir(), &mut host, &ours);
            apply(&copy.inside_dir(), &mut inside, &theirs);
            let pushed = copy.push();
            let mut conflicts = Vec::new();
            for path in ["a", "b", "d/a", "d/b", "d/e/a"] {
                let (was, own, other) = (base.get(path), host.get(path), inside.get(path));
                let wanted = if own == was {
                    other
                } else if other == was || own == other {
                    own
                } else {
                    conflicts.push(path.to_owned());
                    other
                };
                let found = fs::read_to_string(copy.inside_dir().join(path)).ok();
                prop_assert_eq!(found.as_ref(), wanted, "{}", path);
            }
            let named: Vec<String> = pushed.conflicts.iter().map(ToString::to_string).collect();
            prop_assert_eq!(named, conflicts);
            // The result is the difference between the two trees, as far as the sandbox caused it.
            let mut found = BTreeSet::new();
            for change in &copy.collect().set.changes {
                if change.to() == Some(&Node::Dir) || change.from() == Some(&Node::Dir) {
                    continue;
                }
                found.insert(change.path.to_string());
                if let ChangeKind::Renamed { source, .. } = &change.kind {
                    found.insert(source.to_string());
                }
            }
            let now = |path: &&str| fs::read_to_string(copy.inside_dir().join(path)).ok();
            let differs = |path: &&str| now(path).as_ref() != host.get(*path);
            let wanted: BTreeSet<String> = ["a", "b", "d/a", "d/b", "d/e/a"]
                .into_iter()
                .filter(differs)
                .map(str::to_owned)
                .collect();
            prop_assert_eq!(found, wanted);
            Ok(())
        },
    );
    result.unwrap();
}

#[test]
fn a_thousand_files_in_one_directory_and_names_of_any_bytes() {
    let copy = Copy::host();
    for number in 0..1000_u32 {
        let name: Vec<u8> = (0..3)
            .map(|shift| (number >> (shift * 4)) as u8 & 0xf)
            .map(|digit| {
                [
                    1, 9, 10, 32, 39, 34, 92, 127, 128, 200, 255, 42, 63, 91, 45, 58,
                ][usize::from(digit)]
            })
            .collect();
        copy.project_bytes(&name, &number.to_le_bytes());
    }
    assert_eq!(copy.push().files, 1000);
    assert_eq!(tree(&copy.inside_dir()), tree(&copy.project_dir()));
    assert_eq!(copy.push().files, 0);
    for entry in fs::read_dir(copy.inside_dir()).unwrap().flatten() {
        fs::write(entry.path(), "changed").unwrap();
    }
    assert_eq!(copy.collect().set.changes.len(), 1000);
}

/// Project for all ways of collecting.
const PROJECT: [(&str, &str); 4] = [
    ("src/a", "a\n"),
    ("src/b", "b\n"),
    ("tool", "t\n"),
    ("gone/x", "x\n"),
];
const SCRIPT: &str = "echo more >> src/a; mv src/b src/c; chmod +x tool; rm -r gone
    mkdir -p new/dir; echo n > new/dir/n; ln -s ../src/a new/link; ln -s /etc/passwd evil
    mkfifo pipe; mkdir .git; echo x > .git/config";

#[test]
fn every_backend_copies_the_same_way() {
    let all = sandboxes::all();
    let count = all.len();
    for (name, copy) in all {
        for (path, text) in PROJECT {
            copy.project(path, text);
        }
        let pushed = copy.push();
        assert_eq!(
            (pushed.files, pushed.conflicts.len()),
            (4, 0),
            "{name}: {pushed:?}"
        );
        copy.run(SCRIPT);
        let collected = copy.collect();
        assert_eq!(lines(&collected), sandboxes::EXPECTED_LINES, "{name}");
        assert_eq!(refusals(&collected), sandboxes::EXPECTED_REFUSALS, "{name}");
        assert_eq!(copy.push().files, 0, "{name}");
    }
    if count < 3 {
        testkit::skip!("no native sandboxes here");
    }
}

#[test]
fn layers_give_the_same_change_set() {
    let fill = |project: &Path| {
        for (path, text) in PROJECT {
            let path = project.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    };
    let Some(overlay) = sandboxes::Overlay::new(fill) else {
        testkit::skip!("no native sandboxes here");
    };
    let collected = overlay.run_and_collect(SCRIPT);
    assert_eq!(lines(&collected), sandboxes::EXPECTED_LINES);
    assert_eq!(refusals(&collected), sandboxes::EXPECTED_REFUSALS);
}

#[test]
fn what_is_collected_is_of_one_moment() {
    // Two files whose numbers never differ by more than one, with many files to fetch between them.
    let script = "for n in $(seq 200); do seq 2000 > m$n; done; i=0; \
        while :; do i=$((i+1)); echo $i > .t; mv .t a; echo $i > .t; mv .t z; done";
    for (what, copy) in all() {
        copy.project("x", "x");
        copy.push();
        copy.sandbox
            .start_job(Exec::new(["sh", "-c", script]))
            .unwrap();
        copy.run("until test -e z; do sleep 0.01; done");
        let mut last = 0;
        for _ in 0..3 {
            let collected = copy.collect();
            assert_eq!(collected.unheld, None, "{what}");
            let number = |path| text_of(&collected, path).trim().parse::<u64>().unwrap();
            let [a, z] = ["a", "z"].map(number);
            assert!(a == z || a == z + 1, "{what}: {a} and {z}");
            assert!(a > last, "{what}: it was not let go");
            last = a;
            copy.run("sleep 0.02");
        }
    }
}
