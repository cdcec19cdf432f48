//! Client with the few frames that the tests need, over a stream of `carry`.

use glovebox_proto::{
    Background, Capability, Decoder, Exec, Fault, FrameKind, Header, Hello, LogCaps, Reply,
    Request, RequestId, Role, Stdin, TerminalUse, encode, encode_header,
};
use serde_bytes::ByteBuf;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    decoder: Decoder,
    next: u32,
}

impl Client {
    /// Creates a client, and greets the guest.
    pub(crate) fn new(stream: OwnedFd) -> Self {
        let stream = UnixStream::from(stream);
        stream
            .set_read_timeout(Some(Duration::from_mins(1)))
            .unwrap();
        let mut client = Self {
            stream,
            decoder: Decoder::new(),
            next: 1,
        };
        let hello = encode(&Hello::new(Role::Host, &[] as &[Capability])).unwrap();
        client.write(FrameKind::Hello, RequestId(0), &hello);
        let (kind, _, payload) = client.read_frame().unwrap();
        assert_eq!(kind, FrameKind::Hello);
        Hello::accept(&payload, Role::Guest).unwrap();
        client
    }

    fn write(&mut self, kind: FrameKind, id: RequestId, payload: &[u8]) {
        let header = encode_header(Header::control(kind, id, payload.len() as u32));
        self.stream
            .write_all(&[&header[..], payload].concat())
            .unwrap();
    }

    /// Reads a frame; `None` at the end.
    fn read_frame(&mut self) -> Option<(FrameKind, RequestId, Vec<u8>)> {
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return Some((frame.header.kind, frame.header.id, frame.payload.to_vec()));
            }
            match self.stream.read(self.decoder.space()) {
                Ok(0) => return None,
                Ok(count) => self.decoder.filled(count),
                // With a receive timeout, the kernel does not restart an interrupted read
                // (signal(7)).
                Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}"),
            }
        }
    }

    /// Reads the next answer; `None` at the end.
    pub(crate) fn read_answer(&mut self) -> Option<(u32, Result<Reply, Fault>)> {
        loop {
            let (kind, id, payload) = self.read_frame()?;
            if kind == FrameKind::Reply {
                let answer = glovebox_proto::decode(&payload, "reply").unwrap();
                return Some((id.0, answer));
            }
        }
    }

    /// Sends a request, and waits for its answer.
    pub(crate) fn call(&mut self, request: &Request) -> Reply {
        let id = self.next;
        self.next += 1;
        let frames = request_frames(id, request, None);
        self.stream.write_all(&frames).unwrap();
        let (answered, answer) = self.read_answer().expect("the stream ended");
        assert_eq!(answered, id);
        answer.unwrap()
    }

    /// Runs a shell script and returns its output.
    pub(crate) fn run(&mut self, script: &str) -> String {
        let Reply::Exited(report) = self.call(&exec(script, false)) else {
            panic!("no report of an end");
        };
        let reply = self.call(&Request::JobRead {
            job: report.job,
            offset: 0,
            max_bytes: 1 << 20,
            wait_ms: 0,
        });
        let Reply::Log { chunks, .. } = reply else {
            panic!("no log: {reply:?}");
        };
        let bytes = chunks.into_iter().flat_map(|chunk| chunk.bytes.into_vec());
        String::from_utf8(bytes.collect()).unwrap()
    }

    /// Starts a shell script in the background.
    pub(crate) fn start(&mut self, script: &str) {
        let reply = self.call(&exec(script, true));
        assert!(matches!(reply, Reply::Started(_)), "{reply:?}");
    }

    pub(crate) fn guest_pid(&mut self) -> i32 {
        match self.call(&Request::Facts) {
            Reply::Facts(facts) => facts.pid,
            other => panic!("{other:?}"),
        }
    }
}

/// Encodes a request with the bytes of its input channel.
pub(crate) fn request_frames(id: u32, request: &Request, input: Option<&[u8]>) -> Vec<u8> {
    let id = RequestId(id);
    let payload = encode(request).unwrap();
    let header = Header::control(FrameKind::Request, id, payload.len() as u32);
    let mut frames = [&encode_header(header)[..], &payload].concat();
    if let Some(input) = input {
        let channel = glovebox_proto::Channel::Input;
        let header = Header::data(id, channel, input.len() as u32, true);
        frames.extend_from_slice(&encode_header(header));
        frames.extend_from_slice(input);
    }
    frames
}

fn exec(script: &str, detach: bool) -> Request {
    let argv = ["sh", "-c", script].map(|word| ByteBuf::from(word.as_bytes()));
    Request::Exec(Exec {
        argv: argv.to_vec(),
        cwd: None,
        env: Vec::new(),
        clear_env: false,
        stdin: Stdin::Null,
        pty: None,
        terminal_use: TerminalUse::WHOLE,
        descriptors: Vec::new(),
        timeout_ms: None,
        grace_ms: 100,
        stream_output: false,
        log: LogCaps::default(),
        background: Background::Kill,
        detach,
        program: None,
        umask: None,
        merge: true,
        sends_events: false,
    })
}
