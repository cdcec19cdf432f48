//! `--context FILE`: a file for the agent that is not part of the project and too large for the
//! prompt. It is read on the host and copied to where the tools work; the prompt names only its
//! path and size.

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

/// Content of the file when the command began.
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
    /// Reads the file.
    ///
    /// # Errors
    /// Usage error if it is not a regular file or is too large; an I/O error if it cannot be read.
    pub fn read(host: &Surroundings, file: &Path) -> Result<Self, Error> {
        let path = host.absolute(file);
        let shown = escape_text(&path.display().to_string());
        let fail = |error: std::io::Error| Error::io(format!("read {shown}"), &error);
        // Opening a FIFO would block until a writer opens it.
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
    /// Copies the file to where the tools work. On the user's own machine it stays in place.
    ///
    /// # Errors
    /// The file cannot be written in the sandbox.
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

    /// Finds the context file of an earlier run; it counts only if its size is unchanged.
    pub fn find_again(&mut self, context: Option<&ContextData>) {
        self.context = context
            .filter(|context| {
                let stat = self.work.sandbox().stat(context.path.as_bytes(), true);
                stat.is_ok_and(|stat| stat.size == context.bytes)
            })
            .cloned();
    }

    /// Returns the path of the context file inside. A sandbox that shares `/tmp` with others has
    /// its name in it.
    fn context_path(&self) -> String {
        if self.has_own_root() {
            return "/tmp/context".to_owned();
        }
        format!("/tmp/glovebox-context-{}", self.work.sandbox().info().name)
    }

    /// Removes the copy of the file if it would outlive the sandbox.
    pub(super) fn take_away(&self) {
        if let Some(context) = &self.context
            && self.work.placement() == Placement::Sandbox
            && !self.has_own_root()
        {
            // If the sandbox no longer answers, there is nothing to remove in it.
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
