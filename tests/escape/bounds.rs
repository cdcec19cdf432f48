//! Kernel objects that no limit of a spec counts: terminals, watches, queues, contexts. A command may
//! have some of them and never so many that other users of the machine run out.

use crate::arena::Arena;
use crate::script::{perl, sh_ok};
use glovebox_spec::LimitState;

/// Hoarding terminals, descriptors, inotify instances and watches, timers, message queues and
/// asynchronous I/O contexts -> each ends at the documented bound. Twin: a few of each work.
#[test]
fn attack_kernel_objects() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(sandbox, include_str!("probes/attack_kernel_objects.pl"));
        for (name, least, most) in [
            ("descriptors", 4096, 16_384),
            ("terminals", 8, 256),
            ("inotify-instances", 8, 64),
            ("pending-signals", 256, 4096),
            ("timers", 64, 4096),
            ("message-queue-bytes", 4096, 819_200),
            // Landlock lets nobody make one where it is there.
            ("message-queues", 0, 256),
        ] {
            let count: u64 = found.get(&format!("max/{name}")).parse().expect("a number");
            assert!(
                (least..=most).contains(&count),
                "{shape:?}: {count} {name}, wanted {least} to {most}: {found:?}"
            );
        }
        found.worked("raise");
        found.worked("watch");
        found.refused("raise-more", &["EPERM"]);
        found.refused("aio", &["ENOSYS"]);
    });
}

/// The number of inotify watches is a setting of the sandbox's own user namespace, and no command can
/// raise it.
#[test]
fn attack_inotify_watch_setting() {
    let arena = Arena::new();
    let found = perl(
        &arena.sandbox(),
        r#"my $path = '/proc/sys/user/max_inotify_watches'; found('watches', slurp($path));
           try_open('write', $path, 1);"#,
    );
    let watches: u64 = found.get("watches").trim().parse().expect("a number");
    assert!(watches <= 65_536, "{watches} watches");
    found.refused("write", &["EROFS", "EACCES", "EPERM"]);
}

/// The report has a line on these bounds.
#[test]
fn bounds_are_reported() {
    let arena = Arena::new();
    let report = arena.sandbox().report().expect("a report");
    let line = report
        .walls
        .iter()
        .find(|wall| wall.name == "kernel-objects")
        .expect("a line on kernel objects");
    assert_eq!(line.state, LimitState::Enforced);
    for word in [
        "256 terminals",
        "64 inotify instances",
        "4096 pending signals",
    ] {
        assert!(line.detail.contains(word), "no `{word}` in {}", line.detail);
    }
}

/// Twin of all of it: what development tools do with such objects goes on working.
#[test]
fn tools_work_within_the_bounds() {
    let arena = Arena::new();
    let sandbox = arena.sandbox();
    for (tool, script, answer) in [
        (
            "git",
            "git init -q repo && cd repo && echo x > f && git add f && git -c user.name=a -c user.email=a@b commit -qm m && git log --oneline | wc -l",
            "1",
        ),
        (
            "python3",
            "/usr/bin/python3 -c 'import multiprocessing as m; p = m.Pool(4); print(sum(p.map(abs, range(-100, 0))))'",
            "5050",
        ),
        (
            "node",
            "node -e 'const fs = require(\"fs\"); const w = fs.watch(\".\"); w.close(); fs.promises.writeFile(\"n\", \"ok\").then(() => console.log(fs.readFileSync(\"n\", \"utf8\")))'",
            "ok",
        ),
        (
            "sqlite3",
            "sqlite3 db 'pragma journal_mode=wal; create table t(x); insert into t values(7); select x from t;' | tail -1",
            "7",
        ),
    ] {
        let path = sh_ok(&sandbox, &format!("ls /usr/bin/{tool} 2>/dev/null || true"));
        if path.trim().is_empty() {
            continue;
        }
        let outcome = sh_ok(&sandbox, &format!("cd /workspace && {script}"));
        assert_eq!(outcome.trim(), answer, "{tool}");
    }
}
