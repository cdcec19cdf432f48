//! Small system calls that stage 0 makes once: bringing up the loopback interface, adding addresses
//! to it, joining a new keyring.
#![expect(
    unsafe_code,
    reason = "ioctl(2) on an interface request and keyctl(2) have no safe wrapper"
)]

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use std::net::Ipv4Addr;

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Argument of SIOCSIFFLAGS that brings `lo` up (netdevice(7)).
pub(crate) const LOOPBACK_UP: libc::ifreq = {
    // SAFETY: `ifreq` is a C struct of byte arrays, integers and pointers, for which all zeroes is
    // a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags =
        (libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_MULTICAST) as libc::c_short;
    request
};

/// Brings `lo` up in the current network namespace (netdevice(7)).
pub(crate) fn loopback_up() -> Result<(), Errno> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut request = LOOPBACK_UP;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq` at this address; it is initialised, its name is
    // NUL-terminated (the array is longer than "lo"), and it outlives the call.
    let result = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw mut request,
        )
    };
    if result == 0 { Ok(()) } else { Err(last()) }
}

/// Adds an address to `lo` of `socket`'s network namespace. `netmask` says how many addresses are
/// added with it (netdevice(7)). Each added address needs a different `number`.
pub(crate) fn add_loopback_address(
    socket: BorrowedFd<'_>,
    number: u8,
    address: Ipv4Addr,
    netmask: Ipv4Addr,
) -> Result<(), Errno> {
    let name = format!("lo:{number}");
    for (order, address) in [
        (libc::SIOCSIFADDR, address),
        (libc::SIOCSIFNETMASK, netmask),
    ] {
        let mut request = LOOPBACK_UP;
        // Alias of the interface, which holds the added address.
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: 0,
            sin_addr: libc::in_addr {
                s_addr: u32::from(address).to_be(),
            },
            sin_zero: [0; 8],
        };
        // SAFETY: both are C structs of 16 bytes of integers; `sockaddr` is the general form of
        // `sockaddr_in`.
        request.ifr_ifru.ifru_addr =
            unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(address) };
        // SAFETY: SIOCSIFADDR and SIOCSIFNETMASK read one `ifreq` at this address; it is
        // initialised, its name is NUL-terminated (six bytes of sixteen at most), and it outlives
        // the call.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), order as _, &raw mut request) };
        if result != 0 {
            return Err(last());
        }
    }
    Ok(())
}

/// Joins a new, empty session keyring (keyctl(2)), so that no key of the caller is in possession.
pub(crate) fn new_session_keyring() -> Result<(), Errno> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;
    // SAFETY: this operation takes a name or null for an anonymous keyring and reads nothing else.
    let result = unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            KEYCTL_JOIN_SESSION_KEYRING,
            std::ptr::null::<libc::c_char>(),
        )
    };
    match result {
        // Id of the new keyring, which is never zero.
        1.. => Ok(()),
        0 => Err(Errno::INVAL),
        _ => Err(last()),
    }
}

/// Tries to enter a new user namespace. The self-test requires this to fail.
pub(crate) fn try_user_namespace() -> Result<(), Errno> {
    // SAFETY: CLONE_NEWUSER changes credentials only; it closes no descriptors and unshares no
    // memory, so no other code can notice.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER) }
}

/// Closes every descriptor from `first` on that this process inherited.
pub(crate) fn close_from(first: u32) -> Result<(), Errno> {
    // SAFETY: close_range(2) takes three integers. No code of this program owns the descriptors
    // that it closes: it is called before anything has been opened.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0_u32) };
    if result == 0 { Ok(()) } else { Err(last()) }
}
