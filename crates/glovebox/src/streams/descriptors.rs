//! Descriptors of the caller, from 3 on, that the command line names (`<(...)`, `3>log`). The
//! command gets a pipe in place of each, and this module relays its other end. The descriptors
//! themselves are not passed in: with a descriptor of the host a command could do more than read or
//! write.

use super::lent_input::{LentInput, LentSource};
use super::output::write_all;
use crate::exit::CommandError;
use glovebox_proto::{
    Channel, Descriptor, DescriptorDirection, Event, EventDecoder, ExtraStream, JobId, Reply,
    Request, limits,
};
use glovebox_sandbox::{Incoming, Sandbox, Stream, duplicate_descriptor, note_descriptors};
use rustix::fs::{FileType, OFlags};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

static INHERITED: OnceLock<Vec<i32>> = OnceLock::new();

/// Records the descriptors that this process was started with. Must be called before the process
/// opens any.
pub(crate) fn note_inherited() {
    let _ = INHERITED.set(note_descriptors());
}

/// Returns the numbers of the descriptors that this process was started with, from 3 on.
pub(crate) fn inherited() -> &'static [i32] {
    INHERITED.get().map_or(&[], Vec::as_slice)
}

/// Descriptor of the caller that a command gets.
#[derive(Debug)]
struct CallerDescriptor {
    number: i32,
    end: CallerEnd,
}

#[derive(Debug)]
enum CallerEnd {
    /// The command reads it.
    Input(LentSource),
    /// The command writes it.
    Output(OwnedFd),
}

/// Descriptors of the caller that a command gets.
#[derive(Debug, Default)]
pub(crate) struct CallerDescriptors(Vec<CallerDescriptor>);

impl CallerDescriptors {
    /// Opens the descriptors with these numbers.
    ///
    /// # Errors
    /// A usage error if there are too many, or if one is not open or of a kind that no pipe can
    /// replace.
    pub(crate) fn open(numbers: &[i32]) -> Result<Self, CommandError> {
        if numbers.len() > limits::MAX_DESCRIPTORS {
            return Err(CommandError::usage(
                format!(
                    "{} descriptors are named, and a command gets at most {}",
                    numbers.len(),
                    limits::MAX_DESCRIPTORS
                ),
                "name fewer of them",
            ));
        }
        let open = |number: &i32| {
            let number = *number;
            let end = open_end(number).map_err(|why| {
                CommandError::usage(
                    format!("descriptor {number} does not reach the command: {why}"),
                    "a file or a pipe does, open for reading or for writing",
                )
            })?;
            Ok(CallerDescriptor { number, end })
        };
        numbers.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Returns true if there are no descriptors.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns their numbers.
    pub(crate) fn numbers(&self) -> Vec<i32> {
        self.0.iter().map(|descriptor| descriptor.number).collect()
    }

    /// Lists the descriptors to request from the guest.
    pub(super) fn requested(&self) -> Vec<Descriptor> {
        let requested = self.0.iter().map(|descriptor| Descriptor {
            number: descriptor.number.unsigned_abs(),
            direction: match &descriptor.end {
                CallerEnd::Input(source) => DescriptorDirection::Lent {
                    is_followed: source.is_followed(),
                },
                CallerEnd::Output(_) => DescriptorDirection::Output,
            },
        });
        requested.collect()
    }

    /// Starts to relay all of them for a job.
    ///
    /// # Errors
    /// The link is lost, or no thread can be started.
    pub(super) fn carry(
        self,
        sandbox: &Arc<Sandbox>,
        job: JobId,
    ) -> Result<CarriedDescriptors, CommandError> {
        let carry = |descriptor: CallerDescriptor| {
            let stream = ExtraStream::Descriptor(descriptor.number.unsigned_abs());
            let stream = sandbox.open(Request::JobStream { job, stream })?;
            let name = format!("fd {}", descriptor.number);
            match descriptor.end {
                CallerEnd::Input(source) => {
                    let lent = LentInput::lend(source, stream.input())?;
                    spawn(name, move || follow_input(stream, lent))
                }
                CallerEnd::Output(fd) => spawn(name, move || write_output(stream, &fd)),
            }
        };
        let threads = self.0.into_iter().map(carry).collect::<Result<_, _>>()?;
        Ok(CarriedDescriptors(threads))
    }
}

/// Threads that relay descriptors.
#[derive(Debug, Default)]
pub(super) struct CarriedDescriptors(Vec<JoinHandle<()>>);

impl CarriedDescriptors {
    /// Waits until everything that the command wrote has been written, and until exactly what it
    /// read has been consumed from the caller's descriptors. The job must have ended.
    pub(super) fn end(self) {
        for thread in self.0 {
            let _ = thread.join();
        }
    }
}

fn spawn(
    name: String,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, CommandError> {
    std::thread::Builder::new()
        .name(name)
        .stack_size(64 << 10)
        .spawn(work)
        .map_err(|error| CommandError::io("start a thread", &error))
}

fn follow_input(mut stream: Stream, lent: LentInput) {
    let mut events = EventDecoder::default();
    loop {
        match stream.recv() {
            Incoming::Data { bytes, .. } => {
                // Events that cannot be decoded are skipped: the reply repeats the total.
                for event in events.decode(&bytes).unwrap_or_default() {
                    if let Event::InputTaken(total) = event {
                        lent.note_taken(total);
                    }
                }
            }
            Incoming::Reply(Ok(Reply::StreamEnded { taken })) => return lent.settle(taken),
            // The sandbox is lost, which the command's own reply reports. No further byte is known
            // to be read, so none is consumed.
            Incoming::Reply(_) => return lent.settle(0),
        }
    }
}

fn write_output(mut stream: Stream, fd: &OwnedFd) {
    while let Incoming::Data { channel, bytes, .. } = stream.recv() {
        if channel == Channel::Stdout && write_all(fd.as_fd(), &bytes).is_err() {
            // The reader has closed it: cancelling gives the command EPIPE, as a direct pipe would.
            let _ = stream.cancel();
            return;
        }
    }
}

/// Opens a descriptor of the caller.
///
/// # Errors
/// The reason why no pipe can replace it.
fn open_end(number: i32) -> Result<CallerEnd, String> {
    if number.unsigned_abs() > limits::MAX_DESCRIPTOR {
        return Err(format!("its number is above {}", limits::MAX_DESCRIPTOR));
    }
    // A descriptor that this process opened is not the caller's.
    let opened = inherited()
        .contains(&number)
        .then(|| duplicate_descriptor(number));
    let Some(Ok(fd)) = opened else {
        return Err("it is not open".to_owned());
    };
    let flags = rustix::fs::fcntl_getfl(&fd).map_err(|errno| errno.to_string())?;
    let stat = rustix::fs::fstat(&fd).map_err(|errno| errno.to_string())?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if flags.contains(OFlags::PATH) {
        return Err("it is open for neither reading nor writing".to_owned());
    }
    let mode = flags & OFlags::ACCMODE;
    if mode == OFlags::WRONLY && kind != FileType::Socket {
        return Ok(CallerEnd::Output(fd));
    }
    // A terminal is usually open for both; `3>&1` writes to one.
    if mode == OFlags::RDWR && rustix::termios::isatty(&fd) {
        return Ok(CallerEnd::Output(fd));
    }
    if mode != OFlags::RDONLY {
        return Err("it is open for reading and writing".to_owned());
    }
    match kind {
        FileType::RegularFile | FileType::Fifo => LentSource::new(fd)
            .map(CallerEnd::Input)
            .ok_or_else(|| "it cannot be read".to_owned()),
        FileType::Directory => Err("it is a directory".to_owned()),
        _ => Err("it is neither a file nor a pipe".to_owned()),
    }
}
