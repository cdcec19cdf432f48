//! Machine with a guest, whose exec sessions are local processes. Each pipe passes through a proxy
//! that cuts, freezes and encodes.

use glovebox_carrier::{
    Attempt, Connect, ConnectFailure, LinesDecoder, Pipe, PipeEnd, encode_lines,
};
use glovebox_sandbox::GuestImage;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Scripted answer to a later attempt.
#[derive(Debug)]
pub(crate) enum Answer {
    Failure(ConnectFailure),
    /// A pipe with these bytes and nothing after them.
    Bytes(Vec<u8>),
}

/// Connection through a proxy.
#[derive(Debug)]
struct Connection {
    host: UnixStream,
    guest: UnixStream,
    /// True if bytes to the guest are lost, and bytes from it.
    is_frozen: [Arc<AtomicBool>; 2],
}

#[derive(Debug)]
pub(crate) struct Machine {
    dir: TempDir,
    is_lines: bool,
    /// Maximum number of bytes after which a connection is cut; 0 for none.
    max_bytes: u64,
    random: AtomicU64,
    sessions: Mutex<Vec<Child>>,
    connections: Mutex<Vec<Connection>>,
    /// Answers to later attempts, the last one first. If there is none, the guest is asked.
    pub(crate) answers: Mutex<Vec<Answer>>,
    pub(crate) is_unreachable: AtomicBool,
    /// Times of the later attempts.
    pub(crate) attempts: Mutex<Vec<Instant>>,
}

impl Machine {
    pub(crate) fn new() -> Arc<Self> {
        Self::with_proxy(false, 0)
    }

    pub(crate) fn with_proxy(is_lines: bool, max_bytes: u64) -> Arc<Self> {
        let dir = tempfile::tempdir().unwrap();
        let guest = dir.path().join("guest");
        let image = GuestImage::new().unwrap();
        // Written by another process: a child of another test that is about to execute its program
        // would hold a file of this one open for writing, and such a file cannot be executed.
        let status = Command::new("sh")
            .args(["-c", "cat > \"$0\" && chmod 700 \"$0\""])
            .arg(&guest)
            .stdin(fs::File::open(image.path()).unwrap())
            .status()
            .unwrap();
        assert!(status.success(), "{status}");
        Arc::new(Self {
            dir,
            is_lines,
            max_bytes,
            random: AtomicU64::new(0x9e37_79b9_7f4a_7c15),
            sessions: Mutex::default(),
            connections: Mutex::default(),
            answers: Mutex::default(),
            is_unreachable: AtomicBool::new(false),
            attempts: Mutex::default(),
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.path("run")
    }

    /// Closes the latest pipe in both directions, as a network failure does.
    pub(crate) fn cut(&self) {
        let connections = self.connections.lock().unwrap();
        let last = connections.last().unwrap();
        let _ = last.host.shutdown(Shutdown::Both);
        let _ = last.guest.shutdown(Shutdown::Both);
    }

    /// Discards all further bytes of the latest pipe, without closing it.
    pub(crate) fn freeze(&self) {
        let connections = self.connections.lock().unwrap();
        for is_frozen in &connections.last().unwrap().is_frozen {
            is_frozen.store(true, Ordering::Relaxed);
        }
    }

    /// Discards the further bytes from the guest only.
    pub(crate) fn mute(&self) {
        let connections = self.connections.lock().unwrap();
        connections.last().unwrap().is_frozen[1].store(true, Ordering::Relaxed);
    }

    /// Closes the latest pipe for bytes to the guest, and discards those from it.
    pub(crate) fn half_close(&self) {
        self.freeze();
        let connections = self.connections.lock().unwrap();
        let _ = connections.last().unwrap().host.shutdown(Shutdown::Read);
    }

    /// Returns the exec sessions, in order.
    pub(crate) fn sessions(&self) -> MutexGuard<'_, Vec<Child>> {
        self.sessions.lock().unwrap()
    }

    /// Kills a session with its process group.
    pub(crate) fn kill_session(&self, number: usize) {
        let group = self.sessions()[number].id();
        let group = rustix::process::Pid::from_raw(group.cast_signed()).unwrap();
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    }

    /// Returns a pseudo-random number from 1 to `max` (xorshift).
    fn random(&self, max: u64) -> u64 {
        let mut x = self.random.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.store(x, Ordering::Relaxed);
        x % max + 1
    }

    /// Starts an exec session behind a proxy.
    fn exec(&self, attempt: Attempt) -> Pipe {
        let (guest, theirs) = UnixStream::pair().unwrap();
        let (host, ours) = UnixStream::pair().unwrap();
        let run_dir = self.run_dir();
        let mut words = match attempt {
            Attempt::First => vec!["serve", "--resume", run_dir.to_str().unwrap()],
            Attempt::Again => vec!["link", run_dir.to_str().unwrap()],
        };
        if self.is_lines {
            let at = if attempt == Attempt::First { 3 } else { 1 };
            words.insert(at, "--lines");
        }
        let session = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\""])
            .arg(self.path("guest"))
            .args(words)
            .current_dir(self.dir.path())
            .stdin(Stdio::from(OwnedFd::from(theirs.try_clone().unwrap())))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .process_group(0)
            .spawn()
            .unwrap();
        self.sessions().push(session);
        let is_frozen = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        for (is_to_guest, is_frozen) in [true, false].into_iter().zip(&is_frozen) {
            let [from, to] = if is_to_guest {
                [&host, &guest]
            } else {
                [&guest, &host]
            };
            let proxy = Proxy {
                from: from.try_clone().unwrap(),
                to: to.try_clone().unwrap(),
                is_frozen: Arc::clone(is_frozen),
                left: match self.max_bytes {
                    0 => u64::MAX,
                    max => self.random(max),
                },
            };
            let is_lines = self.is_lines;
            std::thread::spawn(move || proxy.run(is_lines, is_to_guest));
        }
        self.connections.lock().unwrap().push(Connection {
            host,
            guest,
            is_frozen,
        });
        pipe(ours)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for session in self.sessions.lock().unwrap().iter_mut() {
            let _ = session.kill();
            let _ = session.wait();
        }
    }
}

/// Opener of pipes to the guest of a machine.
#[derive(Debug)]
pub(crate) struct Exec(pub(crate) Arc<Machine>);

impl Connect for Exec {
    fn connect(&self, attempt: Attempt, _deadline: Instant) -> Result<Pipe, ConnectFailure> {
        let machine = &self.0;
        if attempt == Attempt::First {
            return Ok(machine.exec(attempt));
        }
        machine.attempts.lock().unwrap().push(Instant::now());
        if machine.is_unreachable.load(Ordering::Relaxed) {
            return Err(unreachable(None));
        }
        match machine.answers.lock().unwrap().pop() {
            None => Ok(machine.exec(attempt)),
            Some(Answer::Failure(failure)) => Err(failure),
            Some(Answer::Bytes(bytes)) => {
                let (ours, mut theirs) = UnixStream::pair().unwrap();
                theirs.write_all(&bytes).unwrap();
                Ok(pipe(ours))
            }
        }
    }
}

/// Opener of pipes to a guest that another link started.
#[derive(Debug)]
pub(crate) struct LinkOnly(pub(crate) Arc<Machine>);

impl Connect for LinkOnly {
    fn connect(&self, _attempt: Attempt, _deadline: Instant) -> Result<Pipe, ConnectFailure> {
        Ok(self.0.exec(Attempt::Again))
    }
}

pub(crate) fn unreachable(after: Option<Duration>) -> ConnectFailure {
    let fault = glovebox_proto::Fault::failed(glovebox_proto::Code::Io, "no route to the service");
    ConnectFailure::Retry { fault, after }
}

fn pipe(socket: UnixStream) -> Pipe {
    Pipe {
        reader: OwnedFd::from(socket.try_clone().unwrap()),
        writer: OwnedFd::from(socket),
        early: Vec::new(),
        end: Box::new(SilentEnd),
    }
}

#[derive(Debug)]
struct SilentEnd;

impl PipeEnd for SilentEnd {}

struct Proxy {
    from: UnixStream,
    to: UnixStream,
    is_frozen: Arc<AtomicBool>,
    left: u64,
}

impl Proxy {
    fn run(mut self, is_lines: bool, is_to_guest: bool) {
        let mut buffer = [0; 16 << 10];
        let mut decoder = LinesDecoder::new();
        let mut coded = Vec::new();
        while let Ok(count @ 1..) = self.from.read(&mut buffer) {
            if self.is_frozen.load(Ordering::Relaxed) {
                continue;
            }
            coded.clear();
            match (is_lines, is_to_guest) {
                (false, _) => coded.extend_from_slice(&buffer[..count]),
                (true, true) => {
                    // Output of a shell before the guest starts.
                    coded.extend_from_slice(b"bash: no job control in this shell\n");
                    encode_lines(&buffer[..count], &mut coded);
                }
                (true, false) => decoder.push(&buffer[..count], &mut coded).unwrap(),
            }
            let sent = self.left.min(coded.len() as u64);
            if self.to.write_all(&coded[..sent as usize]).is_err() {
                break;
            }
            self.left -= sent;
            if self.left == 0 {
                break;
            }
        }
        if !self.is_frozen.load(Ordering::Relaxed) {
            let _ = self.from.shutdown(Shutdown::Both);
            let _ = self.to.shutdown(Shutdown::Both);
        }
    }
}

/// Waits until a condition holds; fails after 30 s.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name (proc_pid_stat(5)). A zombie counts as dead.
    !stat.is_empty() && !stat.contains(") Z ")
}

pub(crate) fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
