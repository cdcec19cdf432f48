//! The filter of a sandbox without namespaces, on calls about sockets.

use super::*;

/// Without namespaces, nothing that is not answered by the monitor connects a socket or lends it a
/// port, and ordinary options are set.
#[test]
fn sockets_without_namespaces_are_the_monitors() {
    let judge = |number: i64, args: [u64; 6]| {
        interpret(program(Profile::Confined), ARCH, number as u32, args)
    };
    let errno = |number: i32| libc::SECCOMP_RET_ERRNO | number as u32;
    for number in [libc::SYS_bind, libc::SYS_listen, libc::SYS_connect] {
        let found = judge(number, [3, 0, 0, 0, 0, 0]);
        assert_eq!(found, libc::SECCOMP_RET_USER_NOTIF, "{number}");
    }
    for family in [1, 2, 10, 16] {
        let found = judge(libc::SYS_socket, [family, 1, 0, 0, 0, 0]);
        assert_eq!(found, libc::SECCOMP_RET_USER_NOTIF, "{family}");
    }
    for (family, protocol) in [(17, 0), (40, 0), (2, 262), (16, 4)] {
        let found = judge(libc::SYS_socket, [family, 1, protocol, 0, 0, 0]);
        assert_eq!(found, errno(EAFNOSUPPORT), "{family} {protocol}");
    }
    for (number, index) in [
        (libc::SYS_sendto, 3),
        (libc::SYS_sendmsg, 2),
        (libc::SYS_sendmmsg, 3),
    ] {
        let mut args = [3; 6];
        args[index] = 0x4000;
        assert_eq!(judge(number, args), libc::SECCOMP_RET_ALLOW, "{number}");
        for high in [0, 1 << 32] {
            args[index] = high | 0x2000_4000;
            assert_eq!(judge(number, args), errno(libc::EOPNOTSUPP), "{number}");
        }
    }
    let set = |level: u64, name: u64| judge(libc::SYS_setsockopt, [3, level, name, 0, 0, 0]);
    for (level, name) in [
        (1, 2),
        (1, 9),
        (1, 20),
        (6, 1),
        (6, 18),
        (0, 1),
        (41, 26),
        (270, 5),
    ] {
        assert_eq!(set(level, name), libc::SECCOMP_RET_ALLOW, "{level} {name}");
    }
    // SO_REUSEPORT, a device, a filter, a mark, fast open, repair, ULP, routes, transparency.
    let refused = [
        (1, 15),
        (1, 25),
        (1, 26),
        (1, 36),
        (1, 50),
        (6, 23),
        (6, 30),
        (6, 34),
        (6, 19),
        (6, 31),
        (0, 4),
        (0, 19),
        (0, 15),
        (0, 24),
        (41, 57),
        (41, 75),
        (41, 1),
        (2, 2),
        (132, 1),
        (284, 1),
        (1 << 32, 4),
    ];
    for (level, name) in refused {
        assert_eq!(set(level, name), errno(libc::ENOPROTOOPT), "{level} {name}");
    }
    for request in [0x8901, 0x8902] {
        let found = judge(libc::SYS_ioctl, [3, request, 0, 0, 0, 0]);
        assert_eq!(found, errno(EPERM), "{request:#x}");
    }
}
