//! The system-call filter: other ABIs, high bits, socket families.

use crate::arena::Arena;
use crate::binaries;
use crate::script::{perl, run};
use glovebox_proto::{Exec, Exit, WriteMode};

/// VSOCK by socket, socketpair, the 32-bit ABIs and with high bits -> refused or killed.
#[test]
fn probe_19_vsock_and_other_abis() {
    let arena = Arena::new();
    let sandbox = arena.sandbox();
    let found = perl(
        &sandbox,
        r#"my $sv = "\0" x 8;
           for my $type (1, 2, 3, 5, 1 | 02000000) { try("vsock/$type", 'socket', 40, $type, 0);
             try("high/$type", 'socket', 40 | (1 << 32), $type, 0);
             try("pair/$type", 'socketpair', 40, $type, 0, $sv); }
           try('unix', 'socket', 1, 1, 0); try('unix-pair', 'socketpair', 1, 1, 0, $sv);
           # The x32 ABI: the same numbers with bit 30 set.
           for my $n ('socket', 'mount', 'unshare') { $! = 0;
             verdict("x32/$n", syscall($nr{$n} | 0x40000000, 40, 1, 0) != -1); }"#,
    );
    found.all_refused("vsock/", &["EPERM", "EAFNOSUPPORT"]);
    found.all_refused("high/", &["EPERM", "EAFNOSUPPORT"]);
    found.all_refused("pair/", &["EPERM", "EAFNOSUPPORT", "EOPNOTSUPP"]);
    found.all_refused("x32/", &["ENOSYS", "EPERM"]);
    found.worked("unix");
    found.worked("unix-pair");

    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let attempt = |name: &str, program: &[u8]| {
        let path = format!("/workspace/{name}");
        sandbox
            .write_file(path.as_bytes(), WriteMode::Replace, program)
            .expect("a program inside");
        let made = run(&sandbox, Exec::new(["chmod", "755", path.as_str()]));
        assert!(made.succeeded(), "{made:?}");
        sandbox
            .exec(Exec::new([path.as_str()]))
            .map(|output| output.report.exit)
    };
    // Twin: programs written this way do run.
    assert_eq!(
        attempt("own", &binaries::elf64(&binaries::exit64(7))),
        Ok(Exit::Code(7))
    );
    let killed = Exit::Signal(libc::SIGSYS);
    // socket(AF_VSOCK), unshare(CLONE_NEWUSER), getpid: the ABI itself is closed.
    for (name, number, first) in [
        ("socket", 359, 40),
        ("unshare", 310, 0x1000_0000),
        ("getpid", 20, 0),
    ] {
        let code = binaries::call32(number, first, 1);
        assert_eq!(
            attempt(&format!("int80-{name}"), &binaries::elf64(&code)),
            Ok(killed),
            "{name} from 64 bits"
        );
        match attempt(&format!("i386-{name}"), &binaries::elf32(&code)) {
            // A kernel without 32-bit programs does not start it in the first place.
            Ok(exit) => assert_eq!(exit, killed, "{name} from 32 bits"),
            Err(fault) => assert_eq!(
                fault.code,
                glovebox_proto::Code::CommandNotExecutable,
                "{fault:?}"
            ),
        }
    }
}

/// Every family and type -> UNIX, INET, INET6 and NETLINK only; raw sockets to the network never.
#[test]
fn probe_20_weird_families() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(
            sandbox,
            r#"for my $family (0 .. 60, 255, 65535) { for my $type (1 .. 6, 10) {
                 my $r = sys('socket', $family, $type, 0);
                 if ($r >= 0) { $open{$family}{$type} = 1; sys('close', $r); } } }
               found('families', join ' ', sort { $a <=> $b } keys %open);
               found('inet', join ' ', sort keys %{$open{2}}); found('inet6', join ' ', sort keys %{$open{10}});
               for my $proto (1, 2, 6, 17, 41, 47, 50, 89, 103, 132, 255) {
                 try("raw/$proto", 'socket', 2, 3, $proto); try("raw6/$proto", 'socket', 10, 3, $proto); }
               for my $proto (1 .. 31) { try("netlink/$proto", 'socket', 16, 3, $proto); }
               try("netlink/high", 'socket', 16, 3, 2 | (1 << 32));
               try('tcp', 'socket', 2, 1, 6); try('udp', 'socket', 2, 2, 17);"#,
        );
        found.all_refused("netlink/", &["EAFNOSUPPORT"]);
        assert_eq!(found.get("families"), "1 2 10 16", "{shape:?}");
        assert_eq!(found.get("inet"), "1 2", "{shape:?}");
        assert_eq!(found.get("inet6"), "1 2", "{shape:?}");
        found.all_refused("raw/", &["EPERM", "EAFNOSUPPORT"]);
        found.all_refused("raw6/", &["EPERM", "EAFNOSUPPORT"]);
        found.worked("tcp");
        found.worked("udp");
    });
}

/// Changes of the network by NETLINK_ROUTE -> EPERM; lists of interfaces and addresses are given.
#[test]
fn attack_netlink_changes() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(
            sandbox,
            r#"my $fd = sys('socket', 16, 3, 0);
               open(my $socket, '+<&=', $fd) or die $!;
               sub ask { my ($type, $flags, $body) = @_;
                 syswrite($socket, pack('LSSLL', 16 + length $body, $type, $flags, 1, 0) . $body);
                 sysread($socket, my $answer, 65536);
                 my (undef, $kind) = unpack('LS', $answer);
                 return $kind == 2 ? -unpack('l', substr($answer, 16, 4)) : "kind-$kind"; }
               my $loopback = pack('CCSlLL', 0, 0, 0, 1, 0, 1);
               my $address = pack('CCCCL', 2, 24, 0, 0, 1) . pack('SSC4', 8, 2, 10, 9, 9, 9);
               my $route = pack('C8L', 2, 0, 0, 0, 254, 4, 0, 1, 0) . pack('SSL', 8, 4, 1);
               my $link = pack('CCSlLL', 0, 0, 0, 0, 0, 0) . pack('SSa8', 10, 3, "case0");
               found('set-link', ask(19, 5, $loopback)); found('new-link', ask(16, 0x605, $link));
               found('new-address', ask(20, 0x605, $address)); found('del-address', ask(21, 5, $address));
               found('new-route', ask(24, 0x605, $route)); found('new-neighbour', ask(28, 0x605, pack('CCSlSCC', 2, 0, 0, 1, 2, 0, 0)));
               found('new-rule', ask(32, 0x605, pack('C8L', 2, 0, 0, 0, 254, 0, 0, 1, 0)));
               found('new-qdisc', ask(36, 0x605, pack('CCSlLLL', 0, 0, 0, 1, 0, 0, 0)));
               found('links', ask(18, 0x301, pack('L', 0)));"#,
        );
        for change in [
            "set-link", "new-link", "new-address", "del-address", "new-route", "new-neighbour",
            "new-rule", "new-qdisc",
        ] {
            assert_eq!(found.get(change), "1", "{shape:?}: {change} is not EPERM");
        }
        // RTM_NEWLINK: the first interface.
        assert_eq!(found.get("links"), "kind-16", "{shape:?}");
    });
}

/// Transports that only kernel modules of old offer -> refused, so that nothing is loaded.
#[test]
fn attack_odd_transports() {
    let arena = Arena::new();
    let found = perl(
        &arena.sandbox(),
        r#"for my $f (2, 10) {
             try("odd/sctp/$f", 'socket', $f, 1, 132); try("odd/sctp-seq/$f", 'socket', $f, 5, 132);
             try("odd/dccp/$f", 'socket', $f, 6, 33); try("odd/l2tp/$f", 'socket', $f, 2, 115);
             try("odd/smc/$f", 'socket', $f, 1, 256); try("odd/mptcp/$f", 'socket', $f, 1, 262);
             try("odd/high/$f", 'socket', $f, 1, 132 | (1 << 32)); }
           try('tcp', 'socket', 2, 1, 0);"#,
    );
    // The filter's own answer: what the kernel would say comes after it has looked for a module.
    found.all_refused("odd/", &["EAFNOSUPPORT"]);
    found.worked("tcp");
}
