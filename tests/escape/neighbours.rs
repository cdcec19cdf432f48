//! Two sandboxes side by side: nothing of the one is there in the other.

use crate::arena::Arena;
use crate::script::{perl, sh_ok};

/// Pids, System V objects, sockets, ports, /tmp, /dev/shm, workspace, names of another -> not there.
#[test]
fn probe_59_two_sandboxes() {
    let arena = Arena::new();
    arena.home.write("project/shared", "same\n");
    let (one, other) = (arena.sandbox(), arena.sandbox());
    let mut victim = crate::script::perl_exec(
        r#"$0 = 'victim-process'; open(my $a, '>', '/tmp/victim'); open(my $b, '>', '/dev/shm/victim'); open(my $c, '>', '/workspace/victim');
           open(my $d, '>', '/var/tmp/victim'); open(my $h, '>', "$ENV{HOME}/victim");
           sys('shmget', 77, 4096, 01666); sys('msgget', 77, 01666);
           my $s = sys('socket', 2, 1, 0); my $addr = pack('SnNx8', 2, 4477, 0x7f000001); sys('bind', $s, $addr, 16);
           my $u = sys('socket', 1, 2, 0); my $un = pack('S', 1) . "\0victim"; sys('bind', $u, $un, length $un);
           open(my $r, '>', '/workspace/ready'); sleep 60;"#,
    );
    victim.timeout_ms = None;
    one.start_job(victim).expect("a victim");
    for _ in 0..500 {
        if one.stat(b"/workspace/ready", true).is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let look = r#"for my $p ('/tmp/victim', '/dev/shm/victim', '/workspace/victim', '/var/tmp/victim', "$ENV{HOME}/victim") {
          $! = 0; verdict("file$p", -e $p); }
        try('ipc/shm', 'shmget', 77, 0, 0666); try('ipc/msg', 'msgget', 77, 0666);
        my $s = sys('socket', 1, 2, 0); my $un = pack('S', 1) . "\0victim"; try('abstract', 'connect', $s, $un, length $un);
        my $t = sys('socket', 2, 1, 0); my $addr = pack('SnNx8', 2, 4477, 0x7f000001); try('bind', 'bind', $t, $addr, 16);
        my $own = fork; if (!$own) { $0 = 'own' . '-process'; sleep 20; exit } select(undef, undef, undef, 0.1);
        my $text = ''; for (1 .. 300) { $text .= slurp("/proc/$_/cmdline") // '' } kill 9, $own; waitpid $own, 0;
        found('own-process', index($text, 'own' . '-process') >= 0 ? 'seen' : 'unseen');
        found('process', index($text, 'victim' . '-process') >= 0 ? 'seen' : 'unseen');
        found('uid', (stat '/proc/self')[4]);"#;
    let found = perl(&other, look);
    found.all_refused("file", &["ENOENT"]);
    found.all_refused("ipc/", &["ENOENT"]);
    found.refused("abstract", &["ECONNREFUSED"]);
    found.worked("bind");
    assert_eq!(found.get("process"), "unseen");
    assert_eq!(found.get("own-process"), "seen");
    // Twin: in the same sandbox, all of it is there.
    let found = perl(&one, look);
    for (name, value) in found.below("file").chain(found.below("ipc/")) {
        assert_eq!(value, "ok", "{name}");
    }
    assert_eq!(
        found.get("process"),
        "seen",
        "jobs of one sandbox see each other"
    );
    found.worked("abstract");
    found.refused("bind", &["EADDRINUSE"]);
    assert_eq!(sh_ok(&other, "cat /workspace/shared"), "same\n");

    let namespaces = |sandbox| {
        sh_ok(
            sandbox,
            "readlink /proc/self/ns/mnt /proc/self/ns/pid /proc/self/ns/net /proc/self/ns/ipc /proc/self/ns/user /proc/self/ns/uts /proc/self/ns/cgroup",
        )
    };
    let (first, second) = (namespaces(&one), namespaces(&other));
    for line in first.lines() {
        assert!(!second.contains(line), "both are in {line}");
        let kind = line.split(':').next().unwrap_or_default();
        let host = std::fs::read_link(format!("/proc/self/ns/{kind}")).expect("the host's own");
        assert_ne!(host.to_string_lossy(), line, "the host's");
    }
    if testkit::is_root() {
        let range = |sandbox: &glovebox_sandbox::Sandbox| {
            sandbox.report().expect("a report").identity.range
        };
        assert_ne!(
            range(&one),
            range(&other),
            "two sandboxes have the same ids"
        );
        assert_ne!(
            range(&one).map(|(first, _)| first),
            Some(0),
            "ids of the host"
        );
    }
}
