//! Handshake on a new byte stream: both sides send a greeting before a deadline.

use super::outgoing::Outgoing;
use super::{until, wire_fault};
use glovebox_proto::{
    Capability, Code, Decoder, Fault, FrameKind, Header, Hello, RequestId, Role, encode,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// Byte stream whose peer has sent its greeting.
#[derive(Debug)]
pub(crate) struct GuestLink {
    pub(crate) reader: OwnedFd,
    pub(crate) writer: OwnedFd,
    pub(crate) decoder: Decoder,
    pub(crate) hello: Hello,
}

/// Exchanges greetings with a guest. `early` holds bytes of the guest that were read before.
///
/// # Errors
/// `link-lost` if the stream ends; `timed-out` at the deadline; `protocol` if the peer is not a
/// guest of this version.
pub(crate) fn greet(
    reader: OwnedFd,
    writer: OwnedFd,
    early: &[u8],
    deadline: Instant,
) -> Result<GuestLink, Fault> {
    for fd in [&reader, &writer] {
        set_nonblocking(fd)?;
    }
    let mut outgoing = Outgoing::default();
    let payload = encode(&Hello::new(Role::Host, &[] as &[Capability]))?;
    let header = Header::control(FrameKind::Hello, RequestId(0), payload.len() as u32);
    outgoing.send(&writer, header, &payload).map_err(ended)?;

    let mut decoder = Decoder::new();
    let mut rest = early;
    while !rest.is_empty() {
        let space = decoder.space();
        let count = space.len().min(rest.len());
        space[..count].copy_from_slice(&rest[..count]);
        decoder.filled(count);
        rest = &rest[count..];
    }
    loop {
        if let Some(frame) = decoder.next_frame().map_err(|error| wire_fault(&error))? {
            if frame.header.kind != FrameKind::Hello {
                return Err(Fault::lost(
                    Code::Protocol,
                    "the peer did not begin with a handshake",
                ));
            }
            let hello =
                Hello::accept(frame.payload, Role::Guest).map_err(|error| wire_fault(&error))?;
            while !outgoing.is_empty() {
                wait(&reader, &writer, true, deadline)?;
                outgoing.flush(&writer).map_err(ended)?;
            }
            return Ok(GuestLink {
                reader,
                writer,
                decoder,
                hello,
            });
        }
        wait(&reader, &writer, !outgoing.is_empty(), deadline)?;
        outgoing.flush(&writer).map_err(ended)?;
        match rustix::io::read(&reader, decoder.space()) {
            Ok(0) => {
                return Err(Fault::lost(
                    Code::LinkLost,
                    "the guest ended before its handshake",
                ));
            }
            Ok(count) => decoder.filled(count),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(ended(errno)),
        }
    }
}

fn wait(
    reader: &OwnedFd,
    writer: &OwnedFd,
    is_writing: bool,
    deadline: Instant,
) -> Result<(), Fault> {
    let mut fds = [
        PollFd::new(reader, PollFlags::IN),
        PollFd::new(
            writer,
            if is_writing {
                PollFlags::OUT
            } else {
                PollFlags::empty()
            },
        ),
    ];
    let count = if is_writing { 2 } else { 1 };
    let Ok(left) = until(Some(deadline)) else {
        return Err(Fault::lost(
            Code::TimedOut,
            "the guest did not introduce itself in time",
        ));
    };
    match poll(&mut fds[..count], left.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(ended(errno)),
    }
}

fn ended(errno: Errno) -> Fault {
    Fault::lost(
        Code::LinkLost,
        format!("the guest ended before its handshake: {errno}"),
    )
}

/// Makes reads and writes of a descriptor return instead of waiting.
pub(crate) fn set_nonblocking(fd: impl AsFd) -> Result<(), Fault> {
    fcntl_getfl(&fd)
        .and_then(|flags| fcntl_setfl(&fd, flags | OFlags::NONBLOCK))
        .map_err(|errno| crate::fault::plain_io("cannot make a link non-blocking", errno))
}
