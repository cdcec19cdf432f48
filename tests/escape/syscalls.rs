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

/// Every family and type -> UNIX, INET and INET6 only; raw sockets never.
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
               try('tcp', 'socket', 2, 1, 6); try('udp', 'socket', 2, 2, 17);"#,
        );
        assert_eq!(found.get("families"), "1 2 10", "{shape:?}");
        assert_eq!(found.get("inet"), "1 2", "{shape:?}");
        assert_eq!(found.get("inet6"), "1 2", "{shape:?}");
        found.all_refused("raw/", &["EPERM", "EAFNOSUPPORT"]);
        found.all_refused("raw6/", &["EPERM", "EAFNOSUPPORT"]);
        found.worked("tcp");
        found.worked("udp");
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
