//! Commands that turn on the warden that watches them.

use crate::client::{Guest, count_marked, mark, sh};
use glovebox_proto::Exit;
use std::time::{Duration, Instant};

/// Whether its warden had the time to say that it runs or not, it is told as what it is.
#[test]
fn a_command_that_kills_its_warden_at_once_was_killed() {
    let mut guest = Guest::start();
    for _ in 0..100 {
        let ran = guest.run(sh("kill -9 $PPID; sleep 5")).unwrap();
        assert_eq!(ran.report.exit, Exit::Signal(9));
    }
    assert_eq!(guest.run(sh("exit 3")).unwrap().code(), 3);
}

#[test]
fn killing_its_own_warden_frees_no_one() {
    let mut guest = Guest::start();
    let mark = mark(3);
    let script = format!("(setsid sleep {mark} &); sleep {mark} & kill -9 $PPID; sleep {mark}");
    let ran = guest.run(sh(&script)).unwrap();
    assert_eq!(ran.report.exit, Exit::Signal(9));
    let deadline = Instant::now() + Duration::from_secs(10);
    while count_marked(&mark) > 0 {
        assert!(Instant::now() < deadline, "strays survive");
        guest.listen(Duration::from_millis(5));
    }
    assert_eq!(guest.run(sh("exit 6")).unwrap().code(), 6);
}

#[test]
fn stopping_its_own_warden_changes_nothing() {
    let mut guest = Guest::start();
    for _ in 0..20 {
        let ran = guest
            .run(sh("kill -STOP $PPID; echo done; exit 5"))
            .unwrap();
        assert_eq!((ran.code(), ran.out().as_str()), (5, "done\n"));
    }
}
