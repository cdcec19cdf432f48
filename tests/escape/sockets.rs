//! Sockets and System V objects of the host.

use crate::arena::{Arena, Shape};
use crate::script::{perl, sh};
use glovebox_spec::{Grant, Net, RootFs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Command;

/// Connects to `%s` (Perl expression of the address after the family) as stream and datagram.
const CONNECT: &str = r"
    sub reach { my ($k, $path) = @_; my $a = pack('S', 1) . $path;
        for my $type (1, 2, 5) { my $s = sys('socket', 1, $type, 0);
            try($k . '/' . $type, 'connect', $s, $a, length $a); sys('close', $s); } }
";

/// Connect to an abstract socket of the host -> refused, also where the network is shared. Twin: an
/// own one is reached.
#[test]
fn probe_25_abstract_socket() {
    let name = format!("glovebox-test-{}", std::process::id());
    let stream =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).expect("an address"))
            .expect("an abstract socket on the host");
    stream.set_nonblocking(true).expect("non-blocking");
    let arena = Arena::new();
    let attack = format!(
        r#"{CONNECT} reach('host', "\0{name}");
        my $a = pack('S', 1) . "\0own"; my $l = sys('socket', 1, 1, 0);
        try('bind', 'bind', $l, $a, length $a);
        my $c = sys('socket', 1, 2, 0); my $d = sys('socket', 1, 2, 0);
        my $b = pack('S', 1) . "\0mine"; try('own-bind', 'bind', $d, $b, length $b);
        try('own', 'connect', $c, $b, length $b);"#
    );
    let check = |sandbox: &glovebox_sandbox::Sandbox, refusals: &[&str]| {
        let found = perl(sandbox, &attack);
        found.all_refused("host/", refusals);
        found.worked("own-bind");
        found.worked("own");
    };
    arena.in_every_shape(|_, sandbox| check(sandbox, &["ECONNREFUSED", "EPERM"]));
    let shared = arena.with(|spec| spec.jail.net = Net::Host);
    if shared.facts().expect("facts").landlock_abi >= 6 {
        check(&shared, &["EPERM", "ECONNREFUSED", "EPROTOTYPE"]);
    } else {
        testkit::skip_loudly(
            module_path!(),
            "abstract sockets of a shared network are open without Landlock ABI 6",
        );
    }
    assert!(stream.accept().is_err(), "somebody was let in");
}

/// Sockets with a path: well-known ones, one in the project, one in a granted directory -> absent or
/// refused. Twin: an own one is reached.
#[test]
fn probe_26_path_socket() {
    let arena = Arena::new();
    let granted = arena.home.root().join("granted");
    std::fs::create_dir(&granted).expect("a directory");
    // Host roots show /var, in which everybody can make a socket.
    let var = tempfile::Builder::new()
        .prefix("glovebox-test-")
        .tempdir_in("/var/tmp")
        .expect("a directory in /var/tmp");
    std::fs::set_permissions(var.path(), std::fs::Permissions::from_mode(0o755))
        .expect("open to everybody");
    let listen = |path: &Path| {
        let stream = UnixListener::bind(path).expect("a socket");
        stream.set_nonblocking(true).expect("non-blocking");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))
            .expect("open to everybody");
        stream
    };
    let listeners = [
        listen(&arena.home.project().join("sock")),
        listen(&granted.join("sock")),
        listen(&var.path().join("sock")),
    ];
    let datagram = UnixDatagram::bind(arena.home.project().join("datagram")).expect("a socket");
    datagram.set_nonblocking(true).expect("non-blocking");
    let var_sock = var.path().join("sock").display().to_string();
    for shape in [Shape::Host, Shape::HostAll, Shape::Dir] {
        let mut spec = arena.shaped(shape);
        spec.jail.grants = vec![Grant {
            source: granted.clone(),
            target: "/granted".into(),
        }];
        if spec.jail.rootfs == RootFs::HostAll {
            // Grants into a host root need an existing place.
            spec.jail.grants.clear();
        }
        let sandbox = arena.create(&spec);
        let found = perl(
            &sandbox,
            &format!(
                r#"{CONNECT}
                reach("known$_", "$_\0") for ('/run/docker.sock', '/var/run/docker.sock', '/run/containerd/containerd.sock',
                  '/run/dbus/system_bus_socket', '/var/run/dbus/system_bus_socket', '/run/systemd/private',
                  '/run/systemd/journal/socket', '/dev/log', '/tmp/.X11-unix/X0', '/run/user/1000/bus',
                  '/run/user/0/bus', '/run/user/1000/wayland-0', '/run/podman/podman.sock', '/run/snapd.socket');
                reach('workspace', "/workspace/sock\0"); reach('workspace-dgram', "/workspace/datagram\0");
                reach('granted', "/granted/sock\0"); reach('var', "{var_sock}\0");
                my $d = sys('socket', 1, 2, 0); my $b = pack('S', 1) . "/tmp/own\0";
                try('own-bind', 'bind', $d, $b, length $b); my $c = sys('socket', 1, 2, 0);
                try('own', 'connect', $c, $b, length $b);
                found('env', join ' ', grep {{ /SOCK|DBUS|DISPLAY|XDG_RUNTIME|DOCKER/ }} keys %ENV);"#
            ),
        );
        found.all_refused("known", &["ENOENT", "ENOTDIR", "EACCES"]);
        found.all_refused("workspace", &["ECONNREFUSED"]);
        for prefix in ["granted", "var"] {
            found.all_refused(prefix, &["ECONNREFUSED", "ENOENT", "EACCES", "EPERM"]);
        }
        found.worked("own-bind");
        found.worked("own");
        assert_eq!(found.get("env"), "");
    }
    for listener in &listeners {
        assert!(
            listener.accept().is_err(),
            "{:?} let somebody in",
            listener.local_addr()
        );
    }
}

/// Shared memory, semaphores, queues of the host -> invisible. Twin: own ones are made.
#[test]
fn probe_27_ipc() {
    let key = 0x6c6f_0000 | (std::process::id() & 0xffff);
    let host = |script: &str| {
        let output = Command::new("perl")
            .args(["-e", script])
            .output()
            .expect("perl on the host");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(
        host(&format!(
            "print defined shmget({key}, 4096, 01666) ? 1 : 0; print defined semget({key}, 1, 01666) ? 1 : 0; print defined msgget({key}, 01666) ? 1 : 0"
        )),
        "111"
    );
    let shm = format!("/dev/shm/glovebox-test-{}", std::process::id());
    std::fs::write(&shm, "host").expect("a file in the host's shared memory");
    let arena = Arena::new();
    arena.in_every_shape(|_, sandbox| {
        let found = perl(
            sandbox,
            &format!(
                r#"try('ipc/shm', 'shmget', {key}, 0, 0666); try('ipc/sem', 'semget', {key}, 0, 0666);
                try('ipc/msg', 'msgget', {key}, 0666); try_open('ipc/posix', '{shm}', 0);
                try('ipc/mq', 'mq_open', 'glovebox-test', 2, 0, 0);
                try('own-shm', 'shmget', {key}, 4096, 01666); try('own-msg', 'msgget', {key}, 01666);"#
            ),
        );
        found.all_refused("ipc/", &["ENOENT"]);
        found.worked("own-shm");
        found.worked("own-msg");
    });
    let _ = std::fs::remove_file(&shm);
    host(&format!(
        "shmctl(shmget({key}, 0, 0), 0, 0); semctl(semget({key}, 0, 0), 0, 0, 0); msgctl(msgget({key}, 0), 0, 0)"
    ));
}

/// Two sandboxes over one project pass a descriptor -> they have no socket in common. Twin: two
/// commands of one sandbox do.
#[test]
fn attack_descriptors_between_sandboxes() {
    let arena = Arena::new();
    let (one, other) = (arena.sandbox(), arena.sandbox());
    let listen = r#"import socket, os
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind("/workspace/meet")
t = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); t.bind("\0meet")
open("/workspace/ready", "w").close(); s.settimeout(4)
try: print(socket.recv_fds(s, 10, 4)[0])
except Exception as e: print(type(e).__name__)"#;
    let send = r#"import socket, time, os
for _ in range(100):
    if os.path.exists("/workspace/ready"): break
    time.sleep(0.01)
for to in ("/workspace/meet", "\0meet"):
    try:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect(to)
        socket.send_fds(s, [b"x"], [0]); print("sent")
    except Exception as e: print(type(e).__name__)"#;
    if !sh(&one, "/usr/bin/python3 -c 'import socket; socket.send_fds'").succeeded() {
        testkit::skip!("passing descriptors needs python3 inside");
    }
    let pass = |from: &glovebox_sandbox::Sandbox, to: &glovebox_sandbox::Sandbox| {
        std::thread::scope(|scope| {
            let listening = scope.spawn(|| {
                let output = to
                    .exec(glovebox_proto::Exec::new([
                        "/usr/bin/python3",
                        "-c",
                        listen,
                    ]))
                    .expect("a listener");
                String::from_utf8_lossy(&output.stdout).into_owned()
            });
            let sent = from
                .exec(glovebox_proto::Exec::new(["/usr/bin/python3", "-c", send]))
                .expect("a sender");
            (
                String::from_utf8_lossy(&sent.stdout).into_owned(),
                listening.join().expect("the listener"),
            )
        })
    };
    let (sent, received) = pass(&one, &other);
    assert!(!sent.contains("sent"), "{sent}");
    assert!(
        received.contains("Timeout") || received.contains("timeout"),
        "{received}"
    );
    sh(&other, "rm -f /workspace/meet /workspace/ready");
    let (sent, received) = pass(&other, &other);
    assert!(sent.starts_with("sent"), "{sent}");
    assert!(received.contains("b'x'"), "{received}");
}
