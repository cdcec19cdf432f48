//! Messages with file descriptors over a stream socket, used between the host and stage 0. A
//! message is a `u32` length, then postcard; descriptors are attached to its first byte.

use crate::sys::once;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Serialize, de::DeserializeOwned};
use std::io;
use std::mem::MaybeUninit;

/// Maximum number of descriptors in one message (`SCM_MAX_FD` of unix(7) is 253).
const MAX_FDS: usize = 250;
/// Maximum size of a message in bytes.
const MAX_BYTES: usize = 4 << 20;

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Receives the only order of a process that was started to carry it out, with its descriptors. The
/// first returned value is the socket for the reply. `None` if the order cannot be received.
///
/// Preconditions: the process has one thread and has opened no descriptor.
pub(crate) fn take_order<T: DeserializeOwned, const N: usize>() -> Option<(OwnedFd, T, [OwnedFd; N])>
{
    once::close_from(3).ok()?;
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).ok()?;
    let (order, fds) = receive::<T>(&control).ok()??;
    Some((control, order, fds.try_into().ok()?))
}

/// Sends a message.
pub(crate) fn send<T: Serialize>(
    socket: impl AsFd,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let body = postcard::to_allocvec(message).map_err(|error| invalid(error.to_string()))?;
    if body.len() > MAX_BYTES || fds.len() > MAX_FDS {
        return Err(invalid("the sandbox plan is too large"));
    }
    let length = (body.len() as u32).to_le_bytes();
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(invalid("too many descriptors for one message"));
    }
    let parts = [IoSlice::new(&length), IoSlice::new(&body)];
    let mut sent = retry(|| {
        rustix::net::sendmsg(socket.as_fd(), &parts, &mut ancillary, SendFlags::NOSIGNAL)
    })?;
    while sent < 4 {
        sent += retry(|| rustix::net::send(socket.as_fd(), &length[sent..], SendFlags::NOSIGNAL))?;
    }
    let mut body = &body[sent - 4..];
    while !body.is_empty() {
        let sent = retry(|| rustix::net::send(socket.as_fd(), body, SendFlags::NOSIGNAL))?;
        body = &body[sent..];
    }
    Ok(())
}

/// Receives a message. Blocks until it is complete. `None` at the end of the stream.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: impl AsFd,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut fds = Vec::new();
    let mut length = [0_u8; 4];
    let mut have = 0;
    while have < length.len() {
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let got = retry(|| {
            rustix::net::recvmsg(
                socket.as_fd(),
                &mut [IoSliceMut::new(&mut length[have..])],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            )
        })?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        if got.bytes == 0 {
            return if have == 0 {
                Ok(None)
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            };
        }
        have += got.bytes;
    }
    // TRUST: the peer may be the sandbox's own init; its length is bounded before anything is
    // allocated, and the body must decode exactly.
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_BYTES {
        return Err(invalid(format!(
            "a message of {length} bytes exceeds {MAX_BYTES}"
        )));
    }
    let mut body = vec![0_u8; length];
    let mut have = 0;
    while have < length {
        let got = retry(|| rustix::io::read(socket.as_fd(), &mut body[have..]))?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        have += got;
    }
    let message = postcard::from_bytes(&body).map_err(|error| invalid(error.to_string()))?;
    Ok(Some((message, fds)))
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read as _;

    #[test]
    fn messages_and_descriptors_arrive_in_order() {
        let (a, b) = crate::program::socket_pair().unwrap();
        let file = File::open("/proc/self/comm").unwrap();
        send(&a, &"first".to_owned(), &[file.as_fd()]).unwrap();
        send(&a, &vec![7_u8; 100_000], &[]).unwrap();
        drop(a);
        let (text, mut fds) = receive::<String>(&b).unwrap().unwrap();
        assert_eq!((text.as_str(), fds.len()), ("first", 1));
        let mut comm = String::new();
        File::from(fds.remove(0)).read_to_string(&mut comm).unwrap();
        assert!(!comm.is_empty());
        assert_eq!(receive::<Vec<u8>>(&b).unwrap().unwrap().0.len(), 100_000);
        assert!(receive::<String>(&b).unwrap().is_none());
    }
}
