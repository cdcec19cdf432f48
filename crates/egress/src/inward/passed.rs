//! Connections of a sandbox without a network of its own: its monitor accepts them and passes them
//! on, each with the address that the program asked for.

use crate::inward::{arrival, dns};
use crate::state::ProxyState;
use rustix::fd::{AsFd as _, BorrowedFd};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixDatagram};
use tokio::sync::Semaphore;

/// Length of a message in bytes: an IPv4 address and a port, as on the network.
const MESSAGE_BYTES: usize = 6;
/// Port of name servers. Names are asked for on a stream there, whatever the address.
const NAME_PORT: u16 = 53;

/// Carries the connections that arrive on a SEQPACKET socket, until its other end is closed.
pub(crate) async fn serve(channel: UnixDatagram, state: Arc<ProxyState>, places: Arc<Semaphore>) {
    loop {
        // The permit comes before the message is read: the monitor refuses connections while the
        // socket is full.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let read = || receive(channel.as_fd());
        let (stream, wanted) = match channel.async_io(Interest::READABLE, read).await {
            Ok(Some(connection)) => connection,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => continue,
            Ok(None) | Err(_) => return,
        };
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            if wanted.port() == NAME_PORT {
                // Each end sees that the other broke off.
                let _ = dns::serve_stream(stream, &state).await;
            } else {
                arrival::carry(stream, wanted, &state).await;
            }
            drop(place);
        });
    }
}

/// Receives one connection. `None` at the end.
fn receive(channel: BorrowedFd<'_>) -> io::Result<Option<(TcpStream, SocketAddrV4)>> {
    let mut message = [0; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let mut parts = [IoSliceMut::new(&mut message)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        match rustix::net::recvmsg(channel, &mut parts, &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    if got.bytes == 0 {
        return Ok(None);
    }
    let stream = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let stream = stream.filter(|_| got.bytes == MESSAGE_BYTES);
    let stream = std::net::TcpStream::from(stream.ok_or(io::ErrorKind::InvalidData)?);
    stream.set_nonblocking(true)?;
    let [a, b, c, d, high, low] = message;
    let wanted = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]));
    Ok(Some((TcpStream::from_std(stream)?, wanted)))
}
