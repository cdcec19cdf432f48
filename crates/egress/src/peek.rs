//! Looking at what a program sends first, and leaving it where it is: whoever carries the connection reads all of it.

use rustix::net::RecvFlags;
use std::io;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Waits until more than `seen` bytes have come, or no more will; how many are in `bytes` then.
pub(crate) async fn peek(stream: &TcpStream, bytes: &mut [u8], seen: usize) -> io::Result<usize> {
    loop {
        let ready = stream.ready(Interest::READABLE).await?;
        let found = stream.try_io(Interest::READABLE, || {
            let (length, _) = rustix::net::recv(stream, &mut *bytes, RecvFlags::PEEK)?;
            // What has been seen is no news: the next readiness is that of more bytes.
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
