//! Copies bytes between an exec session's standard streams and the guest's socket.
//!
//! The streams may be pipes, sockets or terminals that other processes share, so their flags are
//! not changed: a thread blocks in each direction.

use glovebox_proto::{LinesDecoder, encode_lines};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Maximum number of bytes of one read; each becomes one line.
const READ_BYTES: usize = 48 << 10;
const STACK_BYTES: usize = 128 << 10;
/// Maximum time to write the guest's last bytes after its socket has closed.
const LAST_BYTES: Duration = Duration::from_secs(2);

/// Standard streams of an exec session.
#[derive(Debug)]
pub(crate) struct Relay {
    input: OwnedFd,
    output: OwnedFd,
    /// True if the session passes only text: bytes are sent as lines of base64.
    is_lines: bool,
}

impl Relay {
    pub(crate) fn new(input: OwnedFd, output: OwnedFd, is_lines: bool) -> Self {
        Self {
            input,
            output,
            is_lines,
        }
    }

    /// Sends a few bytes to the host.
    pub(super) fn send(&self, bytes: &[u8]) {
        let mut lines = Vec::new();
        let _ = write_all(&self.output, encode(bytes, self.is_lines, &mut lines));
    }

    /// Copies until either side ends. Blocks. A thread that still waits for the exec session ends
    /// with the process.
    pub(super) fn run(self, socket: OwnedFd) {
        let Self {
            input,
            output,
            is_lines,
        } = self;
        let socket = Arc::new(socket);
        let (done, is_output_done) = channel();
        let threads = [
            copy_in_thread(&socket, None, move |socket| {
                copy_to_guest(&input, socket, is_lines)
            }),
            copy_in_thread(&socket, Some(done), move |socket| {
                copy_to_host(socket, &output, is_lines)
            }),
        ];
        if threads.iter().any(Result::is_err) {
            let _ = shutdown(&*socket, Shutdown::Both);
            return;
        }
        // A thread that waits for the exec session would not see that the guest has closed the
        // socket: the pipe may stay full or silent for ever. So this thread polls the socket.
        let mut ends = [PollFd::new(&*socket, PollFlags::RDHUP)];
        while poll(&mut ends, None) == Err(Errno::INTR) {}
        let _ = is_output_done.recv_timeout(LAST_BYTES);
    }
}

/// Runs `copy` in a thread that afterwards shuts down the socket in both directions.
fn copy_in_thread(
    socket: &Arc<OwnedFd>,
    done: Option<Sender<()>>,
    copy: impl FnOnce(&OwnedFd) -> Result<(), Errno> + Send + 'static,
) -> std::io::Result<()> {
    let socket = Arc::clone(socket);
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    thread.spawn(move || {
        // The cause of the end is irrelevant: the host reconnects, or learns that the guest has
        // ended.
        let _ = copy(&socket);
        let _ = shutdown(&*socket, Shutdown::Both);
        drop(done);
    })?;
    Ok(())
}

fn copy_to_guest(input: &OwnedFd, socket: &OwnedFd, is_lines: bool) -> Result<(), Errno> {
    let mut buffer = vec![0; READ_BYTES];
    let mut decoder = LinesDecoder::new();
    let mut decoded = Vec::new();
    loop {
        let count = read_some(input, &mut buffer)?;
        let bytes = &buffer[..count];
        if bytes.is_empty() {
            return Ok(());
        }
        if !is_lines {
            write_all(socket, bytes)?;
            continue;
        }
        decoded.clear();
        let result = decoder.push(bytes, &mut decoded);
        write_all(socket, &decoded)?;
        if result.is_err() {
            return Err(Errno::BADMSG);
        }
    }
}

fn copy_to_host(socket: &OwnedFd, output: &OwnedFd, is_lines: bool) -> Result<(), Errno> {
    let mut buffer = vec![0; READ_BYTES];
    let mut lines = Vec::new();
    loop {
        let count = read_some(socket, &mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        write_all(output, encode(&buffer[..count], is_lines, &mut lines))?;
    }
}

/// Returns the bytes to send: `bytes`, or their lines, which are written to `lines`.
fn encode<'a>(bytes: &'a [u8], is_lines: bool, lines: &'a mut Vec<u8>) -> &'a [u8] {
    if !is_lines {
        return bytes;
    }
    lines.clear();
    encode_lines(bytes, lines);
    lines
}

/// Reads once; 0 at the end of file.
fn read_some(fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match rustix::io::read(fd, &mut *buffer) {
            Err(Errno::AGAIN) => wait_for(fd, PollFlags::IN)?,
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

fn write_all(fd: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::AGAIN) => wait_for(fd, PollFlags::OUT)?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Waits for a stream that another process has made non-blocking.
fn wait_for(fd: impl AsFd, flags: PollFlags) -> Result<(), Errno> {
    let no_limit: Option<&Timespec> = None;
    match poll(&mut [PollFd::new(&fd, flags)], no_limit) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::thread::JoinHandle;

    /// A relay that runs: the exec session's input and output, the guest's socket, and the thread.
    fn relay(is_lines: bool) -> ([UnixStream; 3], JoinHandle<()>) {
        let pairs = [(); 3].map(|()| UnixStream::pair().unwrap());
        let [input, output, socket] = pairs.map(|(ours, theirs)| {
            ours.set_read_timeout(Some(Duration::from_secs(30)))
                .unwrap();
            (ours, OwnedFd::from(theirs))
        });
        let relay = Relay::new(input.1, output.1, is_lines);
        let thread = std::thread::spawn(move || relay.run(socket.1));
        ([input.0, output.0, socket.0], thread)
    }

    fn read(stream: &mut UnixStream, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn bytes_pass_both_ways_and_the_last_ones_before_the_end() {
        for is_lines in [false, true] {
            let ([mut input, mut output, mut socket], thread) = relay(is_lines);
            let mut lines = Vec::new();
            input
                .write_all(encode(b"to the guest", is_lines, &mut lines))
                .unwrap();
            assert_eq!(read(&mut socket, 12), b"to the guest");
            socket.write_all(b"to the host").unwrap();
            drop(socket);
            let mut got = Vec::new();
            output.read_to_end(&mut got).unwrap();
            assert_eq!(got, encode(b"to the host", is_lines, &mut lines));
            drop(input);
            thread.join().unwrap();
        }
    }

    #[test]
    fn the_end_of_the_session_ends_the_connection() {
        let ([input, _output, mut socket], thread) = relay(false);
        drop(input);
        assert_eq!(socket.read(&mut [0]).unwrap(), 0);
        thread.join().unwrap();
    }

    #[test]
    fn too_much_noise_ends_the_connection_and_a_little_does_not() {
        let ([mut input, _output, mut socket], thread) = relay(true);
        input
            .write_all(&b"the banner of a shell\n".repeat(100))
            .unwrap();
        let mut lines = Vec::new();
        input.write_all(encode(b"bytes", true, &mut lines)).unwrap();
        assert_eq!(read(&mut socket, 5), b"bytes");
        let _ = input.write_all(&b"the banner of a shell\n".repeat(4000));
        assert_eq!(socket.read(&mut [0]).unwrap(), 0);
        thread.join().unwrap();
    }
}
