//! Options and addresses of sockets that rustix does not know.
#![expect(
    unsafe_code,
    reason = "neither the option nor the address has a safe wrapper"
)]

use rustix::fd::{AsRawFd as _, BorrowedFd};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use std::io;

/// Lets a socket that is bound to an address without a port get its port when it connects
/// (`IP_BIND_ADDRESS_NO_PORT`), so that the port needs to be free for that connection alone.
///
/// # Errors
/// Those of setsockopt(2).
pub(crate) fn bind_port_on_connect(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let yes: libc::c_int = 1;
    // SAFETY: the kernel reads one integer, which lives.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const yes).cast(),
            size_of_val(&yes) as libc::socklen_t,
        )
    };
    check(result)
}

/// Length of a key for [`sign`] in bytes. The kernel takes up to 80.
pub(crate) const KEY_BYTES: usize = 32;

/// `struct tcp_md5sig` of linux/tcp.h.
#[repr(C)]
struct Signature {
    address: libc::sockaddr_storage,
    flags: u8,
    prefix_len: u8,
    key_len: u16,
    interface: i32,
    key: [u8; 80],
}

/// `TCP_MD5SIG_EXT` and its flag for a prefix (linux/tcp.h).
const SIGNATURE_OPTION: libc::c_int = 32;
const HAS_PREFIX: u8 = 1;

/// Makes a TCP socket sign its packets to every IPv4 address, and take only packets that are signed
/// with the same key (RFC 2385). Connections that it accepts inherit this.
///
/// # Errors
/// Those of setsockopt(2); `NOPROTOOPT` if the kernel was built without `CONFIG_TCP_MD5SIG`.
pub(crate) fn sign(
    socket: BorrowedFd<'_>,
    family: AddressFamily,
    key: &[u8; KEY_BYTES],
) -> Result<(), Errno> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut signature: Signature = unsafe { core::mem::zeroed() };
    // An address of all zeros with a prefix of no bits: every address.
    signature.flags = HAS_PREFIX;
    signature.key_len = KEY_BYTES as u16;
    signature.key[..KEY_BYTES].copy_from_slice(key);
    if family == AddressFamily::INET6 {
        // SAFETY: a `sockaddr_storage` is as large and as aligned as every socket address.
        let address = unsafe { &mut *(&raw mut signature.address).cast::<libc::sockaddr_in6>() };
        address.sin6_family = libc::AF_INET6 as libc::sa_family_t;
        // The form that stands for IPv4 addresses on such a socket, `::ffff:0.0.0.0`.
        address.sin6_addr.s6_addr[10..12].fill(0xff);
    } else {
        signature.address.ss_family = libc::AF_INET as libc::sa_family_t;
    }
    // SAFETY: the kernel reads one `tcp_md5sig`, which lives.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            SIGNATURE_OPTION,
            (&raw const signature).cast(),
            size_of_val(&signature) as libc::socklen_t,
        )
    };
    check(result)
}

/// Returns the state of a TCP socket, as the kernel's tcp_states.h numbers it.
///
/// # Errors
/// Those of getsockopt(2).
pub(crate) fn tcp_state(socket: BorrowedFd<'_>) -> Result<u8, Errno> {
    // The state is the first byte of `struct tcp_info`, which may be read in part.
    let mut state = 0_u8;
    let mut len = size_of_val(&state) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `state`, and the length to `len`; both live.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut state).cast(),
            &raw mut len,
        )
    };
    check(result).map(|()| state)
}

/// Binds a netlink socket to a port id and to multicast groups (netlink(7)).
///
/// # Errors
/// Those of bind(2).
pub(crate) fn bind_netlink(socket: BorrowedFd<'_>, port: u32, groups: u32) -> Result<(), Errno> {
    let address = netlink_address(port, groups);
    // SAFETY: the kernel reads one `sockaddr_nl`, which lives.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    check(result)
}

/// Connects a netlink socket (netlink(7)).
///
/// # Errors
/// Those of connect(2).
pub(crate) fn connect_netlink(socket: BorrowedFd<'_>, port: u32, groups: u32) -> Result<(), Errno> {
    let address = netlink_address(port, groups);
    // SAFETY: the kernel reads one `sockaddr_nl`, which lives.
    let result = unsafe {
        libc::connect(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    check(result)
}

fn netlink_address(port: u32, groups: u32) -> libc::sockaddr_nl {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut address: libc::sockaddr_nl = unsafe { core::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_pid = port;
    address.nl_groups = groups;
    address
}

fn check(result: libc::c_int) -> Result<(), Errno> {
    if result < 0 {
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    } else {
        Ok(())
    }
}
