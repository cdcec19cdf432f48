//! Peeking at the first bytes of a program. They stay in the socket, so that the relay of the
//! connection reads all of them.

use rustix::net::RecvFlags;
use std::io;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Waits until more than `seen` bytes have arrived or the stream has ended, and copies them to
/// `bytes`. Returns their number. A number not above `seen` means that no further bytes will
/// arrive.
pub(crate) async fn peek(stream: &TcpStream, bytes: &mut [u8], seen: usize) -> io::Result<usize> {
    loop {
        let ready = stream.ready(Interest::READABLE).await?;
        let found = stream.try_io(Interest::READABLE, || {
            let (length, _) = rustix::net::recv(stream, &mut *bytes, RecvFlags::PEEK)?;
            // `WouldBlock` clears tokio's readiness, so that the next wait ends only when further
            // bytes arrive. Returning would make the caller spin on the bytes it has seen.
            if length > seen || length == 0 || ready.is_read_closed() {
                Ok(length)
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            }
        });
        match found {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            found => return found,
        }
    }
}
