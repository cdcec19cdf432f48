//! Copies bytes between two connections, in both directions, until both have ended.
//!
//! A direction begins with a buffer of this process. If it carries much, it continues through a
//! pipe (splice(2)): the kernel then moves pages from one socket to the other without copying them
//! to this process.

use crate::memory::PUMP_BYTES;
use crate::record::accounts::FlowControl;
use crate::record::meter::Meter;
use crate::record::traffic::Direction;
use rustix::fd::OwnedFd;
use rustix::net::Shutdown;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::io;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Bytes after which a direction gets a pipe. Most connections never carry as many and need no
/// further descriptors.
const SPLICE_AFTER_BYTES: u64 = 1 << 20;
/// Requested size of the pipe (fcntl(2), F_SETPIPE_SZ), in bytes.
const PIPE_BYTES: usize = 1 << 20;
/// Moves pages where possible, and does not block on the pipe.
const SPLICE_FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);
/// Rounds after which the task yields, because all connections of a sandbox share one thread.
const ROUNDS: u32 = 16;

/// Copies both directions, as far as the meter allows. If one connection breaks off, both are
/// reset, so that neither end takes partial data for complete data.
pub(crate) async fn pump(program: &TcpStream, server: &TcpStream, meter: &Meter) -> io::Result<()> {
    let ended = tokio::try_join!(
        one_way(program, server, meter, Direction::Sent),
        one_way(server, program, meter, Direction::Received)
    );
    if ended.is_err() {
        reset(program);
        reset(server);
    }
    ended.map(drop)
}

/// Makes a later drop of the stream send a reset instead of an orderly end (`SO_LINGER` of zero,
/// socket(7)).
pub(crate) fn reset(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

async fn one_way(
    from: &TcpStream,
    to: &TcpStream,
    meter: &Meter,
    direction: Direction,
) -> io::Result<()> {
    let mut way = PumpBuffer::Buffer(vec![0; PUMP_BYTES]);
    let mut carried = 0_u64;
    let mut rounds = 0;
    loop {
        let length = way.take(from, meter.most_at_once()).await?;
        if length == 0 {
            if direction == Direction::Sent {
                meter.sent_all();
            }
            // Only this direction ends: the other end may still send its response.
            return rustix::net::shutdown(to, Shutdown::Write).map_err(Into::into);
        }
        // Counted before it is passed on: bytes beyond the limit must not reach the other end.
        let flow = meter.count(direction, length);
        if flow == FlowControl::Stop {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        way.give(to, length).await?;
        if let FlowControl::Wait(wait) = flow {
            tokio::time::sleep(wait).await;
        }
        carried = carried.saturating_add(length as u64);
        // If there are too many descriptors or pipes, copying through the buffer continues.
        if let PumpBuffer::Buffer(_) = way
            && carried >= SPLICE_AFTER_BYTES
            && let Ok(pipe) = PumpBuffer::pipe()
        {
            way = pipe;
        }
        rounds += 1;
        if rounds % ROUNDS == 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// Buffer of one direction. It is empty between two rounds.
enum PumpBuffer {
    Buffer(Vec<u8>),
    Pipe { reader: OwnedFd, writer: OwnedFd },
}

impl PumpBuffer {
    fn pipe() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // The kernel limits the size of all pipes of a user (pipe(7)). The default size works as
        // well.
        let _ = fcntl_setpipe_size(&writer, PIPE_BYTES);
        Ok(Self::Pipe { reader, writer })
    }

    /// Reads up to `most` bytes that have arrived and returns their number. 0 means the end of the
    /// stream.
    async fn take(&mut self, from: &TcpStream, most: usize) -> io::Result<usize> {
        when(from, Interest::READABLE, || match self {
            Self::Buffer(bytes) => {
                let length = most.min(bytes.len());
                Ok(rustix::io::read(
                    from,
                    bytes.get_mut(..length).unwrap_or_default(),
                )?)
            }
            // The pipe is empty, so that `EAGAIN` can come from the socket only.
            Self::Pipe { writer, .. } => Ok(splice(
                from,
                None,
                writer,
                None,
                most.min(PIPE_BYTES),
                SPLICE_FLAGS,
            )?),
        })
        .await
    }

    /// Writes the bytes that were read.
    async fn give(&mut self, to: &TcpStream, length: usize) -> io::Result<()> {
        let mut sent = 0;
        while sent < length {
            sent += when(to, Interest::WRITABLE, || match self {
                Self::Buffer(bytes) => Ok(rustix::io::write(
                    to,
                    bytes.get(sent..length).unwrap_or_default(),
                )?),
                Self::Pipe { reader, .. } => {
                    Ok(splice(reader, None, to, None, length - sent, SPLICE_FLAGS)?)
                }
            })
            .await?;
        }
        Ok(())
    }
}

/// Repeats `act` until the socket is ready for it.
async fn when(
    socket: &TcpStream,
    interest: Interest,
    mut act: impl FnMut() -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        socket.ready(interest).await?;
        match socket.try_io(interest, &mut act) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
