//! `--context FILE`: a file for the agent that is no part of the project and too large to be told. It is
//! read out here, put where the tools work, and only its place and size are told.

use super::workplace::AgentWorkplace;
use crate::Error;
use glovebox_agent::Placement;
use glovebox_proto::visible::line_of_text as escape_text;
use glovebox_proto::{Remedy, Request, Setting, WriteMode};
use glovebox_settings::Surroundings;
use glovebox_tools::ContextData;
use std::fmt;
use std::fs::{File, metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The file as it was when the command began.
#[derive(Debug)]
pub struct ContextFile {
    path: PathBuf,
    content: Vec<u8>,
}

impl fmt::Display for ContextFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.path.display(), self.content.len())
    }
}

impl ContextFile {
    /// Reads it.
    ///
    /// # Errors
    /// Usage, when it is no regular file or too large; whatever keeps it from being read.
    pub fn read(host: &Surroundings, file: &Path) -> Result<Self, Error> {
        let path = host.absolute(file);
        let shown = escape_text(&path.display().to_string());
        let fail = |error: std::io::Error| Error::io(format!("read {shown}"), &error);
        // Opening a pipe would wait for the other end.
        if !metadata(&path).map_err(fail)?.is_file() {
            return Err(Error::usage(
                format!("the context {shown} is not a regular file"),
                Remedy::advice(["give a file of text with ".into(), Setting::Context.into()]),
            ));
        }
        let mut content = Vec::new();
        let limit = ContextData::MAX_BYTES;
        File::open(&path)
            .and_then(|file| file.take(limit + 1).read_to_end(&mut content))
            .map_err(fail)?;
        if content.len() as u64 > limit {
            return Err(Error::usage(
                format!("the context {shown} has more than {} MiB", limit >> 20),
                "give a smaller file, or put it into the project",
            ));
        }
        Ok(Self { path, content })
    }
}

impl AgentWorkplace {
    /// Puts the file where the tools are. On the user's own machine it stays where it is.
    ///
    /// # Errors
    /// When it cannot be written there.
    pub fn bring(&mut self, given: &ContextFile) -> Result<(), Error> {
        let path = if self.work.placement() == Placement::Local {
            given.path.display().to_string()
        } else {
            let inside = self.context_path();
            let mode = WriteMode::Replace;
            self.work
                .sandbox()
                .write_file(inside.as_bytes(), mode, &given.content)?;
            inside
        };
        self.context = Some(ContextData {
            path,
            bytes: given.content.len() as u64,
        });
        Ok(())
    }

    /// The file of an earlier run, if it is still as large as it was.
    pub fn find_again(&mut self, context: Option<&ContextData>) {
        self.context = context
            .filter(|context| {
                let stat = self.work.sandbox().stat(context.path.as_bytes(), true);
                stat.is_ok_and(|stat| stat.size == context.bytes)
            })
            .cloned();
    }

    /// Elsewhere others have files under `/tmp` as well.
    fn context_path(&self) -> String {
        if self.has_own_root() {
            return "/tmp/context".to_owned();
        }
        format!("/tmp/glovebox-context-{}", self.work.sandbox().info().name)
    }

    /// Removes it from where it would stay.
    pub(super) fn take_away(&self) {
        if let Some(context) = &self.context
            && self.work.placement() == Placement::Sandbox
            && !self.has_own_root()
        {
            // A sandbox that does not answer any more has taken it along or never had it.
            let _ = self.work.sandbox().call(Request::Remove {
                path: serde_bytes::ByteBuf::from(context.path.as_bytes()),
                recursive: false,
            });
        }
    }

    fn has_own_root(&self) -> bool {
        self.work.sandbox().info().backend.has_layers()
    }
}
