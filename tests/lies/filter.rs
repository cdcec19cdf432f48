//! A seccomp filter around glovebox that answers one system call with a lie.
//!
//! The filter is put on by a Perl launcher, which then executes glovebox: everything that glovebox starts
//! inherits it, stage 0 and the program on the inside included.

use std::fmt::Write as _;
use std::process::Command;
use testkit::Person;

/// Which invocations of a system call are answered with the lie. Filters compare arguments as 32 bits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Condition {
    Always,
    /// The argument of this index has this value.
    Equals(u32, u32),
    /// The argument of this index has one of these bits.
    AnyBit(u32, u32),
}

/// A system call that setting up a sandbox relies on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) number: libc::c_long,
    pub(crate) condition: Condition,
}

/// What is answered instead of the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// `ENOSYS`: the kernel is older than it is.
    NotImplemented,
    /// `EPERM`: the kernel is stricter than it is.
    NotPermitted,
    /// Zero, and nothing has happened.
    NoEffect,
}

impl Lie {
    pub(crate) const ALL: [Self; 3] = [Self::NotImplemented, Self::NotPermitted, Self::NoEffect];

    fn errno(self) -> i32 {
        match self {
            Self::NotImplemented => libc::ENOSYS,
            Self::NotPermitted => libc::EPERM,
            Self::NoEffect => 0,
        }
    }
}

/// Installs the filter of the first argument, in hexadecimal, and executes the rest. With CAP_SYS_ADMIN this
/// works without `no_new_privs`, so that a lie about `no_new_privs` means something. Root gets a supplementary
/// group, so that there is one to leave.
const LAUNCHER: &str = r#"
    my $program = pack('H*', shift);
    my $filter = pack('S x6 P', length($program) / 8, $program);
    my ($prctl, $seccomp) = (shift, shift);
    $) = '0 4242' if $> == 0;
    if (syscall($seccomp + 0, 1, 0, $filter) != 0) {
        syscall($prctl + 0, 38, 1, 0, 0, 0) == 0 or die "no_new_privs: $!";
        syscall($seccomp + 0, 1, 0, $filter) == 0 or die "seccomp: $!";
    }
    exec { $ARGV[0] } @ARGV or die "exec: $!";
"#;

/// `glovebox`, by this person, on a kernel that lies about one call.
pub(crate) fn glovebox_under(person: &Person, call: Call, lie: Lie) -> Command {
    let mut hex = String::new();
    for byte in program(call, lie).iter().flat_map(Instruction::bytes) {
        let _ = write!(hex, "{byte:02x}");
    }
    let mut command = person.program("perl");
    command
        .args(["-e", LAUNCHER, &hex])
        .args([libc::SYS_prctl.to_string(), libc::SYS_seccomp.to_string()])
        .arg(person.binary());
    command
}

/// One instruction of a classic BPF program (`struct sock_filter`).
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

impl Instruction {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.code.to_ne_bytes().to_vec();
        bytes.extend([self.if_true, self.if_false]);
        bytes.extend(self.value.to_ne_bytes());
        bytes
    }
}

fn program(call: Call, lie: Lie) -> Vec<Instruction> {
    /// Offsets in `struct seccomp_data`; of an argument the low word, on a little-endian machine.
    const NUMBER: u32 = 0;
    const ARCHITECTURE: u32 = 4;
    const ARGUMENTS: u32 = 16;
    const AUDIT_ARCH: u32 = if cfg!(target_arch = "aarch64") {
        0xc000_00b7
    } else {
        0xc000_003e
    };
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    let load = |value| Instruction {
        code: 0x20,
        if_true: 0,
        if_false: 0,
        value,
    };
    let finish = |value| Instruction {
        code: 0x06,
        if_true: 0,
        if_false: 0,
        value,
    };
    // Goes on when the comparison holds, else over `skipped` instructions to the one that allows.
    let unless = |code, value, skipped| Instruction {
        code,
        if_true: 0,
        if_false: skipped,
        value,
    };
    const EQUAL: u16 = 0x15;
    const ANY_BIT: u16 = 0x45;
    let tail = match call.condition {
        Condition::Always => Vec::new(),
        Condition::Equals(index, value) => {
            vec![load(ARGUMENTS + 8 * index), unless(EQUAL, value, 1)]
        }
        Condition::AnyBit(index, bits) => {
            vec![load(ARGUMENTS + 8 * index), unless(ANY_BIT, bits, 1)]
        }
    };
    let rest = u8::try_from(tail.len()).unwrap();
    let number = u32::try_from(call.number).unwrap();
    let mut program = vec![
        load(ARCHITECTURE),
        unless(EQUAL, AUDIT_ARCH, rest + 3),
        load(NUMBER),
        unless(EQUAL, number, rest + 1),
    ];
    program.extend(tail);
    program.push(finish(ERRNO | lie.errno().cast_unsigned()));
    program.push(finish(ALLOW));
    program
}
