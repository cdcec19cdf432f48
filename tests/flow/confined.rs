//! The backend `confined`: walls without namespaces, each attack with its legitimate twin.

use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Stdio;
use std::time::Duration;
use testkit::{Person, Process, await_sleepers, has_program, marker, skip, wait_until};

pub(crate) const RUN: &str = "--quiet run --backend confined --no-toolchains --apply never";

/// Whether the kernel has what this backend needs; says so loudly where it has not.
pub(crate) fn can_start(person: &Person) -> bool {
    let ran = person.line(&format!("{RUN} -- true")).run();
    if ran.code == 125 && ran.err().contains("Landlock ABI") {
        testkit::skip_loudly(module_path!(), "needs Linux 6.12");
        return false;
    }
    true
}

pub(crate) fn each(mut test: impl FnMut(&Person)) {
    Person::each(|person| {
        if can_start(person) {
            test(person);
        }
    });
}

#[test]
fn changes_come_back_from_one_command_and_from_a_sandbox_that_stays() {
    each(|person| {
        person.write("project/a.txt", "one\n");
        let script = "cat a.txt; echo two >> a.txt; mkdir -p new/deep; echo x > new/deep/file; chmod 755 new/deep/file";
        let ran = person
            .script(
                "--quiet run --backend confined --no-toolchains --apply auto",
                script,
            )
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "one\n", "{ran}");
        let project = person.project();
        assert_eq!(
            fs::read_to_string(project.join("a.txt")).unwrap(),
            "one\ntwo\n"
        );
        let mode = fs::metadata(project.join("new/deep/file"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o755);
        assert!(project.join("new/deep/file").is_file());

        let _ = person
            .line("--quiet start --backend confined --no-toolchains box")
            .run()
            .expect_code(0);
        let _ = person
            .script("exec box", "echo three >> a.txt")
            .run()
            .expect_code(0);
        let shown = person.line("diff box").run().expect_code(0);
        assert!(shown.out().contains("+three"), "{shown}");
        let _ = person.line("pull box").run().expect_code(0);
        let text = fs::read_to_string(project.join("a.txt")).unwrap();
        assert_eq!(text, "one\ntwo\nthree\n");
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn files_outside_cannot_be_read_or_changed_and_own_ones_can() {
    each(|person| {
        person.write("project/own", "own\n");
        let outside = person.write("outside/file", "secret\n");
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o644)).unwrap();
        let before = fs::metadata(&outside).unwrap();
        let script = format!(
            "f={}\n\
             cat $f; cat /etc/shadow; ls ${{f%/*}}; ls /; ls /tmp; ls /etc; cat /proc/1/environ\n\
             echo x >> $f; echo x > ${{f%/*}}/new; rm $f; mv $f own2; ln $f own2; truncate -s 0 $f\n\
             chmod 777 $f; touch -d @978307200 $f; chown :$(id -g) $f; ln -s $f link; chmod 777 link\n\
             echo x > /tmp/glovebox-$$; echo x > /dev/shm/glovebox-$$; mknod n b 8 0; cat /dev/pts/*\n\
             exec 9< own; chmod 777 /proc/$$/fd/9\n\
             echo ---\n\
             cat own; chmod 600 own && touch -d @978307200 own && stat -c '%a %Y' own\n\
             chmod 640 /proc/self/fd/0 < own && stat -c %a own\n\
             ln own hard && mv hard sub || mkdir sub; echo t > $TMPDIR/t && cat $TMPDIR/t; echo h > ~/h && cat ~/h\n\
             cp -p own copy && stat -c %Y copy; chown $(id -u):$(id -g) own && echo owned; tar cf t.tar own && \
             mkdir out && tar xpf t.tar -C out && stat -c %Y out/own",
            outside.display()
        );
        let ran = person.script(RUN, &script).run().expect_code(0);
        let out = ran.out();
        let (attacks, twins) = out.split_once("---\n").unwrap();
        assert_eq!(attacks, "", "{ran}");
        let day = "978307200";
        let expected = format!("own\n600 {day}\n640\nt\nh\n{day}\nowned\n{day}\n");
        assert_eq!(twins, expected, "{ran}");
        let after = fs::metadata(&outside).unwrap();
        assert_eq!(fs::read_to_string(&outside).unwrap(), "secret\n");
        assert_eq!(before.permissions(), after.permissions());
        assert_eq!(before.modified().unwrap(), after.modified().unwrap());
        let beside = fs::read_dir(outside.parent().unwrap()).unwrap();
        assert_eq!(beside.count(), 1);
    });
}

#[test]
fn processes_outside_are_neither_signalled_nor_looked_into_and_own_ones_are() {
    each(|person| {
        let mut outside = person
            .program("sleep")
            .arg("600")
            .env("SECRET", "planted")
            .spawn()
            .unwrap();
        let pid = outside.id();
        let script = format!(
            "for signal in 0 STOP KILL; do kill -$signal {pid} && echo signalled; done\n\
             kill -KILL -1 && echo all\n\
             for f in environ mem maps fd/0 cwd/ exe root/; do cat /proc/{pid}/$f > x && echo read $f; done\n\
             renice -n 5 -p {pid} > x && echo reniced\n\
             echo ---\n\
             sleep 300 & kill -KILL $!; wait $!; echo $?\n\
             tr '\\0' '\\n' < /proc/self/environ | grep -c ^HOME=; test -r /proc/{pid}/cmdline && echo named"
        );
        let ran = person.script(RUN, &script).run();
        let out = ran.out();
        // A signal to all reaches the sandbox's own processes, and may end them.
        let (attacks, twins) = out.split_once("---\n").unwrap_or((&out, ""));
        assert_eq!(attacks.replace("all\n", ""), "", "{ran}");
        if ran.code == 0 {
            assert_eq!(twins, "137\n1\nnamed\n", "{ran}");
        }
        assert!(outside.try_wait().unwrap().is_none(), "{ran}");
        outside.kill().unwrap();
        outside.wait().unwrap();

        let twins = "sleep 300 & kill -KILL $!; wait $!; echo $?; grep -c . /proc/self/status > x && echo own";
        let ran = person.script(RUN, twins).run().expect_code(0);
        assert_eq!(ran.out(), "137\nown\n", "{ran}");
    });
}

/// Tries every way to a socket of the place, then what programs need of sockets.
const SOCKETS: &str = r#"
import os, socket, sys
path, name, port = sys.argv[1], "\0" + sys.argv[2], int(sys.argv[3])
def attempt(what, call):
    try:
        call()
        print("reached", what)
    except OSError:
        pass
def unix(address, kind=socket.SOCK_STREAM):
    socket.socket(socket.AF_UNIX, kind).connect(address)
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW):
    attempt("path", lambda: unix(path, kind))
    attempt("abstract", lambda: unix(name, kind))
attempt("tcp", lambda: socket.create_connection(("127.0.0.1", port), 2))
attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port)))
attempt("tcp6", lambda: socket.socket(socket.AF_INET6).connect(("::1", port)))
attempt("mptcp", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
    attempt("datagram pair", lambda: socket.socketpair(socket.AF_UNIX, kind))
a, b = socket.socketpair()
attempt("a pair with an address", lambda: a.connect(path))
attempt("a message with an address", lambda: a.sendto(b"x", path))
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4))
print("---")
a.sendall(b"through a pair\n"); print(b.recv(99).decode(), end="")
c, d = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
c.send(b"x"); print(len(d.recv(9)))
print("lo" in [name for _, name in socket.if_nameindex()])
r, w = os.pipe(); os.write(w, b"pipe\n"); print(os.read(r, 9).decode(), end="")
import asyncio; print(asyncio.run(asyncio.sleep(0, "loop")))
"#;

#[test]
fn sockets_of_the_place_cannot_be_connected_to_and_pairs_work() {
    if !has_program("python3") {
        skip!("needs python3");
    }
    each(|person| {
        person.write("project/sockets.py", SOCKETS);
        // In the home, as an agent of the user's; a node that lies in the project comes along as no socket.
        let path = person.place().home().join("service.sock");
        let _by_path = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let name = format!("glovebox-test-{}-{}", std::process::id(), person.is_root());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _abstract = UnixListener::bind_addr(&address).unwrap();
        let service = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = service.local_addr().unwrap().port();
        let script = format!("python3 sockets.py {} {name} {port}", path.display());
        let ran = person.script(RUN, &script).run().expect_code(0);
        let out = ran.out();
        let (attacks, twins) = out.split_once("---\n").unwrap();
        assert_eq!(attacks, "", "{ran}");
        assert_eq!(twins, "through a pair\n1\nTrue\npipe\nloop\n", "{ran}");
    });
}

#[test]
fn no_process_has_a_capability_or_can_get_one() {
    each(|person| {
        let script = "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; \
            unshare -U true 2>/dev/null && echo namespace; mount -t tmpfs x . 2>/dev/null && echo mount; \
            chroot . true 2>/dev/null && echo root";
        let ran = person.script(RUN, script).run();
        let none = "0000000000000000";
        let expected = format!(
            "CapInh:\t{none}\nCapPrm:\t{none}\nCapEff:\t{none}\nCapBnd:\t{none}\nCapAmb:\t{none}\n\
             NoNewPrivs:\t1\nSeccomp:\t2\n"
        );
        // An ordinary user cannot change the bounding set, of which nothing can be had then.
        let out = ran.out();
        let kept = |line: &&str| person.is_root() || !line.starts_with("CapBnd");
        let seen: Vec<&str> = out.lines().filter(kept).collect();
        let wanted: Vec<&str> = expected.lines().filter(kept).collect();
        assert_eq!(seen, wanted, "{ran}");
    });
}

#[test]
fn nothing_outlives_the_owner_even_where_the_guest_is_stopped() {
    each(|person| {
        let (left, ended) = (marker(), marker());
        // What has left its command, under a guest that cannot hear of the end any more.
        let script = format!(
            "setsid sh -c 'sleep {left} & sleep {left}' < /dev/null > /dev/null 2>&1 &\n\
             sleep 0.3; guest=$(cut -d' ' -f4 /proc/$PPID/stat); kill -STOP $guest; exec sleep {ended}"
        );
        let mut owner = person
            .script(RUN, &script)
            .command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        await_sleepers(&left, 2);
        await_sleepers(&ended, 1);
        owner.kill().unwrap();
        owner.wait().unwrap();
        let is_gone = || {
            [&left, &ended]
                .iter()
                .all(|marker| Process::mentioning(marker).is_empty())
        };
        assert!(wait_until(Duration::from_secs(15), is_gone));
    });
}

#[test]
fn a_sandbox_whose_owner_was_killed_goes_on_with_the_files_it_had() {
    each(|person| {
        person.write("project/a.txt", "one\n");
        let start = "--quiet start --backend confined --no-toolchains box";
        let _ = person.line(start).run().expect_code(0);
        let script = "echo two >> a.txt; echo home > ~/file";
        let _ = person.script("exec box", script).run().expect_code(0);
        let listed = person.line("list --json").run().expect_code(0);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        let owner = &listed
            .pointer("/data/sandboxes/0/pid")
            .or(listed.pointer("/sandboxes/0/pid"));
        let owner = owner.unwrap().as_u64().unwrap().to_string();
        let killed = std::process::Command::new("kill")
            .args(["-KILL", &owner])
            .status()
            .unwrap();
        assert!(killed.success());
        let is_stopped = || {
            let listed = person.line("list").run().out();
            listed.contains("box") && !listed.contains("ready")
        };
        assert!(wait_until(Duration::from_secs(10), is_stopped));
        // Every start sweeps what dead sandboxes left.
        let _ = person.line(&format!("{RUN} -- true")).run().expect_code(0);
        let _ = person.line(start).run().expect_code(0);
        let ran = person
            .script("exec box", "cat a.txt ~/file")
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "one\ntwo\nhome\n", "{ran}");
        let _ = person.line("pull box").run().expect_code(0);
        let text = fs::read_to_string(person.project().join("a.txt")).unwrap();
        assert_eq!(text, "one\ntwo\n");
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn what_it_cannot_do_is_refused_in_words() {
    each(|person| {
        let failure = |line: &str| {
            let ran = person.line(line).run().expect_code(125);
            ran.failure(person.place().root())
        };
        let host = failure("run --backend confined --net host -- true");
        assert!(host.contains("there would be no wall"), "{host}");
        let nested = failure("run --backend confined --nested -- true");
        assert!(nested.contains("nested"), "{nested}");
        let sessions = person
            .line("serve --backend confined --listen 127.0.0.1:0")
            .run();
        assert!(
            sessions.err().contains("sessions on `confined`"),
            "{sessions}"
        );
    });
}

#[test]
fn an_order_of_backends_is_the_users_and_is_told() {
    each(|person| {
        // The first of them does not start: it leads nowhere.
        let ran = person
            .line("run --no-toolchains --apply never -- true")
            .env("GLOVEBOX_BACKEND", "command,confined")
            .env("GLOVEBOX_CARRIER", "false")
            .run()
            .expect_code(0);
        let told = "glovebox: sandbox on confined (command is refused here)";
        assert!(ran.err().contains(told), "{ran}");
        // A project's file cannot take it, alone or in an order, nor a service where the user has an account.
        for value in [
            "\"confined\"",
            "[\"native\", \"confined\"]",
            "\"sprites\"",
            "\"aio\"",
        ] {
            person.write("project/glovebox.toml", format!("backend = {value}\n"));
            let ran = person.line("run --apply never -- true").run();
            assert_ne!(ran.code, 0, "{ran}");
            assert!(ran.err().contains("only the user's own settings"), "{ran}");
        }
    });
}

#[test]
fn a_command_has_a_terminal_and_cannot_open_that_of_others() {
    if !has_program("script") {
        skip!("needs script(1)");
    }
    each(|person| {
        let inside = "tty > /dev/null && test -t 1 && echo a-terminal > /dev/tty; ls /dev/pts";
        let line = format!(
            "{} run --backend confined --no-toolchains --apply never -- sh -c '{inside}'",
            person.binary().display()
        );
        let ran = person
            .program("script")
            .args(["-qec", &line, "/dev/null"])
            .current_dir(person.project())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(out.contains("a-terminal"), "{out}");
        assert!(out.contains("Permission denied"), "{out}");
    });
}
