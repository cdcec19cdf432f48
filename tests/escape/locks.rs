//! Leases and locks on files that the host uses as well: a command must not make programs of the host wait.

use crate::arena::Arena;
use crate::script::{perl, sh_ok};
use glovebox_spec::Grant;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::time::{Duration, Instant};

/// Leases, delegations and directory notifications on a granted file, a project file and a file of the
/// sandbox's own -> refused. Twin: locks of all kinds, and the host opens the files meanwhile.
#[test]
fn attack_leases() {
    let arena = Arena::new();
    let granted = arena.home.root().join("granted");
    fs::create_dir(&granted).expect("a directory to grant");
    fs::write(granted.join("file"), "granted").expect("a file to grant");
    fs::write(arena.home.project().join("file"), "project").expect("a file of the project");
    let sandbox = arena.with(|spec| {
        spec.jail.grants.push(Grant {
            source: granted.clone(),
            target: "/opt/granted".into(),
        });
    });
    let found = perl(
        &sandbox,
        r#"open(my $own, '>', '/tmp/own') or die; my @files = (granted => '/opt/granted/file', project => '/workspace/file', own => '/tmp/own');
           while (my ($name, $path) = splice(@files, 0, 2)) { open(my $h, '<', $path) or die "$path: $!"; my $fd = fileno($h);
             # F_SETLEASE, F_NOTIFY, F_SETDELEG; F_RDLCK, F_WRLCK; the command number with a high bit
             for my $cmd (1024, 1026, 1040, 1024 | (1 << 32)) { for my $kind (0, 1) { try("lease/$name/$cmd/$kind", 'fcntl', $fd, $cmd, $kind) } }
             try("lock/$name/flock", 'flock', $fd, 1 | 4);
             my $lock = pack('s s x4 q q i x4', 0, 0, 0, 0, 0); try("lock/$name/posix", 'fcntl', $fd, 6, $lock);
             $lock = pack('s s x4 q q i x4', 0, 0, 0, 0, 0); try("lock/$name/description", 'fcntl', $fd, 37, $lock);
             try("lock/$name/flags", 'fcntl', $fd, 3, 0); }"#,
    );
    found.all_refused("lease/", &["EPERM"]);
    for (name, answer) in found.below("lock/") {
        assert_eq!(answer, "ok", "{name}");
    }
    // A lease that was held would keep this one waiting for as long as the kernel lets it.
    let begun = Instant::now();
    for path in [granted.join("file"), arena.home.project().join("file")] {
        File::options()
            .write(true)
            .open(&path)
            .expect("the host opens its file");
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
}

/// A lock on a project file is the sandbox's own: the host gets one on the same file. Twin: two commands
/// lock each other out. On a granted file the two share locks, as the documents say.
#[test]
fn locks_of_the_project_stay_inside() {
    let arena = Arena::new();
    let granted = arena.home.root().join("granted");
    fs::create_dir(&granted).expect("a directory to grant");
    let (shared, project) = (granted.join("file"), arena.home.project().join("file"));
    fs::write(&shared, "granted").expect("a file to grant");
    fs::write(&project, "project").expect("a file of the project");
    let sandbox = arena.with(|spec| {
        spec.jail.grants.push(Grant {
            source: granted.clone(),
            target: "/opt/granted".into(),
        });
    });
    let holder = sandbox
        .start_job(glovebox_proto::Exec::new([
            "perl",
            "-e",
            "open(A, '<', '/workspace/file') && flock(A, 2) or die; open(B, '<', '/opt/granted/file') && flock(B, 2) or die; open(C, '>', '/tmp/held'); sleep 60",
        ]))
        .expect("it starts");
    sh_ok(&sandbox, "while [ ! -e /tmp/held ]; do sleep 0.05; done");
    let twin = sh_ok(
        &sandbox,
        "perl -e 'open(A, q(<), q(/workspace/file)); print flock(A, 6) ? q(got) : q(waits)'",
    );
    assert_eq!(twin, "waits");
    let try_lock = |path| {
        let file = File::open(path).expect("a file of the host");
        flock(&file, FlockOperation::NonBlockingLockExclusive)
    };
    assert_eq!(
        try_lock(&project),
        Ok(()),
        "a command locks the host's project"
    );
    // What the documents warn of; if the kernel ever keeps these apart, they can say so.
    assert_eq!(try_lock(&shared), Err(rustix::io::Errno::AGAIN));
    let ended = sandbox.call(glovebox_proto::Request::JobKill {
        job: holder,
        grace_ms: 0,
    });
    assert!(ended.is_ok(), "{ended:?}");
}
