//! Passing bytes on between two connections, both ways, until both have ended.
//!
//! A direction begins with a buffer of this process. One that carries much goes on through a pipe (splice(2)): the
//! kernel then moves pages from one socket to the other, and none is copied here.

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

/// What a direction has carried when it gets a pipe: most connections never do, and need no more descriptors.
const SPLICE_AFTER_BYTES: u64 = 1 << 20;
/// Size of that pipe, as far as the kernel allows it (fcntl(2), F_SETPIPE_SZ).
const PIPE_BYTES: usize = 1 << 20;
/// Pages are moved where that can be, and only the socket is waited for.
const SPLICE_FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);
/// Rounds after which others get their turn: the connections of a sandbox share a thread.
const ROUNDS: u32 = 16;

/// Passes everything on, as far as the meter lets it. A connection that breaks off breaks the other off, so that nobody
/// takes a part for the whole.
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

/// Makes the end of a connection, when it is dropped, that of a closed port.
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
            // The other end may still answer.
            return rustix::net::shutdown(to, Shutdown::Write).map_err(Into::into);
        }
        let flow = meter.count(direction, length);
        if flow == FlowControl::Stop {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        way.give(to, length).await?;
        if let FlowControl::Wait(wait) = flow {
            tokio::time::sleep(wait).await;
        }
        carried = carried.saturating_add(length as u64);
        // With too many descriptors or pipes it takes longer, and works.
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

/// What the bytes of one direction go through. It is empty between two rounds.
enum PumpBuffer {
    Buffer(Vec<u8>),
    Pipe { reader: OwnedFd, writer: OwnedFd },
}

impl PumpBuffer {
    fn pipe() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A user has a bound on all pipes together (pipe(7)); a smaller one does as well.
        let _ = fcntl_setpipe_size(&writer, PIPE_BYTES);
        Ok(Self::Pipe { reader, writer })
    }

    /// Takes at most so much of what has come; how much that was, and nothing at the end.
    async fn take(&mut self, from: &TcpStream, most: usize) -> io::Result<usize> {
        when(from, Interest::READABLE, || match self {
            Self::Buffer(bytes) => {
                let length = most.min(bytes.len());
                Ok(rustix::io::read(
                    from,
                    bytes.get_mut(..length).unwrap_or_default(),
                )?)
            }
            // The pipe is empty, so that only the socket can have nothing to give.
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

    /// Passes on what was taken.
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

/// Does it as soon as the socket lets it.
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
