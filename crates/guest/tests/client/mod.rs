//! A small host for the real guest: one connection over a socket pair, blocking, with deadlines.
#![allow(clippy::missing_panics_doc, reason = "it is a test")]
#![allow(dead_code, reason = "every test file uses another part of it")]
#![allow(
    unreachable_pub,
    reason = "included as a module by several test crates"
)]

use glovebox_proto::{
    Channel, Decoder, Exec, Exit, ExitReport, Fault, FrameKind, HEADER_BYTES, Header, Hello, JobId,
    RecvWindow, Reply, Request, RequestId, Role, SendWindow, encode, encode_header,
};
use rustix::fd::OwnedFd;
use serde_bytes::ByteBuf;
use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_mins(1);

/// A guest process and the connection to it.
pub struct Guest {
    pub child: Child,
    pub stream: UnixStream,
    decoder: Decoder,
    next: u32,
    pub replies: HashMap<RequestId, Result<Reply, Fault>>,
    pub data: HashMap<(RequestId, Channel), Vec<u8>>,
    pub received: HashMap<(RequestId, Channel), u64>,
    received_windows: HashMap<(RequestId, Channel), RecvWindow>,
    send_windows: HashMap<RequestId, SendWindow>,
    /// Give credit as data arrives.
    pub gives_credit: bool,
    /// Keep the bytes, not only their number.
    pub keeps_data: bool,
    pub hello: Option<Hello>,
}

/// What a finished command left.
#[derive(Debug)]
pub struct CommandResult {
    pub report: ExitReport,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl CommandResult {
    pub fn code(&self) -> i32 {
        match self.report.exit {
            Exit::Code(code) => code,
            Exit::Signal(signal) => panic!("ended by signal {signal}: {self:?}"),
        }
    }
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

pub fn sh(script: &str) -> Exec {
    Exec::new(["/bin/sh", "-c", script])
}

impl Guest {
    pub fn start() -> Self {
        Self::start_in(std::path::Path::new("/tmp"))
    }

    /// A guest whose working directory is `dir`.
    pub fn start_in(dir: &std::path::Path) -> Self {
        let mut guest = Self::start_without_hello(dir);
        let hello = encode(&Hello::new(Role::Host, &[])).unwrap();
        guest.frame(
            Header::control(FrameKind::Hello, RequestId(0), hello.len() as u32),
            &hello,
        );
        let deadline = Instant::now() + PATIENCE;
        while guest.hello.is_none() {
            assert!(
                guest.turn(deadline),
                "the guest closed the link before its hello"
            );
        }
        guest
    }

    pub fn start_without_hello(dir: &std::path::Path) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stdin = OwnedFd::from(theirs.try_clone().unwrap());
        let built = env!("CARGO_BIN_EXE_glovebox-guest");
        let program = std::env::var_os("GUEST_PROGRAM").unwrap_or_else(|| built.into());
        let child = Command::new(program)
            .arg("serve")
            .current_dir(dir)
            .stdin(Stdio::from(stdin))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        Self {
            child,
            stream: ours,
            decoder: Decoder::new(),
            next: 1,
            replies: HashMap::new(),
            data: HashMap::new(),
            received: HashMap::new(),
            received_windows: HashMap::new(),
            send_windows: HashMap::new(),
            gives_credit: true,
            keeps_data: true,
            hello: None,
        }
    }

    pub fn frame(&mut self, header: Header, payload: &[u8]) {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
        bytes.extend_from_slice(&encode_header(header));
        bytes.extend_from_slice(payload);
        self.stream.write_all(&bytes).unwrap();
    }

    /// Sends a request.
    pub fn ask(&mut self, request: &Request) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        let payload = encode(request).unwrap();
        self.frame(
            Header::control(FrameKind::Request, id, payload.len() as u32),
            &payload,
        );
        id
    }

    /// Starts the receiving side's bookkeeping afresh, after credit was given by hand.
    pub fn forget_window(&mut self, id: RequestId, channel: Channel) {
        self.received_windows.remove(&(id, channel));
    }

    pub fn cancel(&mut self, id: RequestId) {
        self.frame(Header::control(FrameKind::Cancel, id, 0), &[]);
    }

    pub fn give(&mut self, id: RequestId, channel: Channel, bytes: u32) {
        self.frame(Header::credit(id, channel), &bytes.to_le_bytes());
    }

    /// Receives once; `false` at the end of the stream.
    pub fn turn(&mut self, deadline: Instant) -> bool {
        assert!(Instant::now() < deadline, "the guest does not answer");
        match self.stream.read(self.decoder.space()) {
            Ok(0) => return false,
            Ok(count) => self.decoder.filled(count),
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
                ) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return false,
            Err(error) => panic!("{error}"),
        }
        let mut credits = Vec::new();
        while let Some(frame) = self.decoder.next_frame().unwrap() {
            let id = frame.header.id;
            match frame.header.kind {
                FrameKind::Hello => {
                    self.hello = Some(Hello::accept(frame.payload, Role::Guest).unwrap());
                }
                FrameKind::Reply => {
                    let reply = glovebox_proto::decode(frame.payload, "reply").unwrap();
                    assert!(
                        self.replies.insert(id, reply).is_none(),
                        "two replies to {id}"
                    );
                }
                FrameKind::Data => {
                    let key = (id, frame.header.channel);
                    assert!(
                        !self.replies.contains_key(&id),
                        "data after the reply to {id}"
                    );
                    *self.received.entry(key).or_default() += frame.payload.len() as u64;
                    if self.keeps_data {
                        self.data
                            .entry(key)
                            .or_default()
                            .extend_from_slice(frame.payload);
                    }
                    let window = self.received_windows.entry(key).or_default();
                    window.arrived(frame.payload.len() as u32).unwrap();
                    if self.gives_credit
                        && let Some(credit) = window.consumed(frame.payload.len() as u32)
                    {
                        credits.push((key, credit));
                    }
                }
                FrameKind::Credit => {
                    let credit = frame.credit().unwrap();
                    self.send_windows
                        .entry(id)
                        .or_default()
                        .credit(credit)
                        .unwrap();
                }
                other => panic!("the guest sent {other:?}"),
            }
        }
        for ((id, channel), credit) in credits {
            // The request may just have been answered, and the guest may be gone.
            let header = encode_header(Header::credit(id, channel));
            let _ = self
                .stream
                .write_all(&[&header[..], &credit.to_le_bytes()].concat());
        }
        true
    }

    /// Receives for a while.
    pub fn listen(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.turn(Instant::now() + PATIENCE);
        }
    }

    /// The answer to a request.
    pub fn answer(&mut self, id: RequestId) -> Result<Reply, Fault> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(reply) = self.replies.remove(&id) {
                return reply;
            }
            assert!(self.turn(deadline), "the guest closed the link");
        }
    }

    /// Whether the answer has arrived.
    pub fn has_answer(&self, id: RequestId) -> bool {
        self.replies.contains_key(&id)
    }

    /// Request and answer.
    pub fn call(&mut self, request: &Request) -> Result<Reply, Fault> {
        let id = self.ask(request);
        self.answer(id)
    }

    /// Sends stream bytes, waiting for room.
    pub fn send(&mut self, id: RequestId, mut bytes: &[u8], is_last: bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let room = self.send_windows.entry(id).or_default().room() as usize;
            let now = bytes.len().min(room).min(64 << 10);
            if now > 0 || bytes.is_empty() {
                self.send_windows.entry(id).or_default().spend(now as u32);
                let ends = is_last && now == bytes.len();
                self.frame(
                    Header::data(id, Channel::Input, now as u32, ends),
                    &bytes[..now],
                );
                bytes = &bytes[now..];
                if bytes.is_empty() {
                    return;
                }
            } else if self.replies.contains_key(&id) {
                return;
            } else {
                assert!(self.turn(deadline), "the guest closed the link");
            }
        }
    }

    pub fn take(&mut self, id: RequestId, channel: Channel) -> Vec<u8> {
        self.data.remove(&(id, channel)).unwrap_or_default()
    }

    /// Collects an `Exec` that was asked.
    pub fn ran(&mut self, id: RequestId) -> Result<CommandResult, Fault> {
        match self.answer(id)? {
            Reply::Exited(report) => {
                let (stdout, stderr) = (
                    self.take(id, Channel::Stdout),
                    self.take(id, Channel::Stderr),
                );
                Ok(CommandResult {
                    report,
                    stdout,
                    stderr,
                })
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn run(&mut self, exec: Exec) -> Result<CommandResult, Fault> {
        let id = self.ask(&Request::Exec(exec));
        self.ran(id)
    }

    pub fn start_job(&mut self, mut exec: Exec) -> JobId {
        exec.detach = true;
        match self.call(&Request::Exec(exec)).unwrap() {
            Reply::Started(job) => job,
            other => panic!("{other:?}"),
        }
    }

    pub fn write_file(&mut self, request: &Request, content: &[u8]) -> Result<Reply, Fault> {
        let id = self.ask(request);
        self.send(id, content, true);
        self.answer(id)
    }

    pub fn read_file(
        &mut self,
        path: &[u8],
        offset: u64,
        max_bytes: Option<u64>,
    ) -> Result<Vec<u8>, Fault> {
        let id = self.ask(&Request::FileRead {
            path: ByteBuf::from(path),
            offset,
            max_bytes,
        });
        let reply = self.answer(id)?;
        let bytes = self.take(id, Channel::Content);
        match reply {
            Reply::Read { bytes: count, .. } => assert_eq!(count, bytes.len() as u64),
            other => panic!("{other:?}"),
        }
        Ok(bytes)
    }

    /// A number of `/proc/PID/status` of the guest.
    pub fn status_kib(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Waits for the guest to exit by itself.
    pub fn await_exit(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the guest does not exit");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Living processes whose command line contains `mark`.
pub fn count_marked(mark: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| {
        let own = entry.file_name().to_string_lossy() == std::process::id().to_string();
        if own {
            None
        } else {
            std::fs::read(entry.path().join("cmdline")).ok()
        }
    });
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(mark))
        .count()
}

/// A command line argument no other test uses: a sleep of an odd length.
pub fn mark(number: u32) -> String {
    format!("{}.{:05}", 90_000 + number, std::process::id() % 100_000)
}
