//! Files of a sandbox: reading and writing of whole files, and listing.

use super::{Sandbox, unexpected};
use crate::handle::stream::Stream;
use crate::link::Incoming;
use glovebox_proto::limits::{MAX_DATA_BYTES, MAX_LIST_ENTRIES};
use glovebox_proto::{Class, Code, DirEntry, Fault, Reply, Request, Stat, WriteMode};
use serde_bytes::ByteBuf;
use std::sync::Arc;

impl Sandbox {
    /// Returns the content of a regular file.
    ///
    /// # Errors
    /// `too-large` if the file has more than `max_bytes`.
    pub fn read_file(&self, path: &[u8], max_bytes: u64) -> Result<Vec<u8>, Fault> {
        // One byte more is requested, to distinguish a file that is too large from one that just
        // fits.
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
                // The link collects the content, so no data arrives here.
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

    /// Writes a file and creates its parents. Returns true if the file is new.
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

    /// Sends a whole file, to be written with its parents. The reply, [`Reply::Written`], is read
    /// from the returned stream later, so that the caller can send more meanwhile.
    ///
    /// # Errors
    /// The loss of the link. Other errors are in the reply.
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
        // If the input was refused, the reply has the reason. Only a lost link is an error here.
        match stream.send(content).and_then(|()| stream.finish_input()) {
            Err(fault) if fault.class == Class::Lost => Err(fault),
            _ => Ok(stream),
        }
    }

    /// Returns the metadata of a path.
    pub fn stat(&self, path: &[u8], follow: bool) -> Result<Stat, Fault> {
        match self.call(Request::Stat {
            path: ByteBuf::from(path),
            follow,
        })? {
            Reply::Stat(stat) => Ok(stat),
            _ => Err(unexpected("a stat")),
        }
    }

    /// Returns the entries of a directory, sorted by name, and the number of entries that did not
    /// fit.
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
