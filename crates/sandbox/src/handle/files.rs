//! Files of a sandbox: whole contents, and what is where.

use super::{Sandbox, unexpected};
use crate::handle::stream::Stream;
use crate::link::Incoming;
use glovebox_proto::limits::{MAX_DATA_BYTES, MAX_LIST_ENTRIES};
use glovebox_proto::{Class, Code, DirEntry, Fault, Reply, Request, Stat, WriteMode};
use serde_bytes::ByteBuf;
use std::sync::Arc;

impl Sandbox {
    /// The content of a regular file.
    ///
    /// # Errors
    /// `too-large` when there is more than `max_bytes`.
    pub fn read_file(&self, path: &[u8], max_bytes: u64) -> Result<Vec<u8>, Fault> {
        // One more than wanted tells a file that is too large from one that just fits.
        let asked = max_bytes.saturating_add(1);
        let request = Request::FileRead {
            path: ByteBuf::from(path),
            offset: 0,
            max_bytes: Some(asked),
        };
        let core = &self.core;
        let id = core
            .link
            .open_gathering(&request, asked)
            .map_err(|fault| core.explain(fault))?;
        let mut stream = Stream::new(Arc::clone(core), id, None);
        let content = loop {
            match stream.recv() {
                // All of it is gathered.
                Incoming::Data { .. } => {}
                Incoming::Reply(Ok(Reply::Read { .. })) => break core.link.gathered(id),
                Incoming::Reply(Ok(_)) => return Err(unexpected("the end of a file")),
                Incoming::Reply(Err(fault)) => return Err(fault),
            }
        };
        if content.len() as u64 > max_bytes {
            let path = String::from_utf8_lossy(path);
            return Err(Fault::failed(
                Code::TooLarge,
                format!("{path} has more than {max_bytes} bytes"),
            ));
        }
        Ok(content)
    }

    /// Writes a file, with its parents; true when it is new.
    pub fn write_file(&self, path: &[u8], mode: WriteMode, content: &[u8]) -> Result<bool, Fault> {
        let mut stream = self.send_file(path, mode, 0o644, content)?;
        loop {
            match stream.recv() {
                Incoming::Data { .. } => {}
                Incoming::Reply(Ok(Reply::Written { is_new, .. })) => return Ok(is_new),
                Incoming::Reply(Ok(_)) => return Err(unexpected("a written file")),
                Incoming::Reply(Err(fault)) => return Err(fault),
            }
        }
    }

    /// Sends a whole file, to be written with its parents. The answer, [`Reply::Written`], is still to come:
    /// for who does not want to wait for it without looking up.
    ///
    /// # Errors
    /// The loss of the link; what else goes wrong is in the answer.
    pub fn send_file(
        &self,
        path: &[u8],
        mode: WriteMode,
        permissions: u32,
        content: &[u8],
    ) -> Result<Stream, Fault> {
        let request = Request::FileWrite {
            path: ByteBuf::from(path),
            mode,
            permissions,
            make_parents: true,
        };
        if content.len() <= MAX_DATA_BYTES as usize {
            let core = &self.core;
            let id = core
                .link
                .open_with_input(&request, content)
                .map_err(|fault| core.explain(fault))?;
            return Ok(Stream::new(Arc::clone(core), id, None));
        }
        let stream = self.open(request)?;
        // A refused input means that the answer says why; only a lost link ends it here.
        match stream.send(content).and_then(|()| stream.finish_input()) {
            Err(fault) if fault.class == Class::Lost => Err(fault),
            _ => Ok(stream),
        }
    }

    /// What a path is.
    pub fn stat(&self, path: &[u8], follow: bool) -> Result<Stat, Fault> {
        match self.call(Request::Stat {
            path: ByteBuf::from(path),
            follow,
        })? {
            Reply::Stat(stat) => Ok(stat),
            _ => Err(unexpected("a stat")),
        }
    }

    /// Entries of a directory, sorted by name, and how many more there are.
    pub fn list(&self, path: &[u8]) -> Result<(Vec<DirEntry>, u64), Fault> {
        let request = Request::List {
            path: ByteBuf::from(path),
            max_entries: MAX_LIST_ENTRIES,
        };
        match self.call(request)? {
            Reply::List { entries, more } => Ok((entries, more)),
            _ => Err(unexpected("a directory")),
        }
    }
}
