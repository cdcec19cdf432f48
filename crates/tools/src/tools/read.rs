//! Read: a text file by lines, an image, a notebook, a directory, or the output of a job.

mod kind;
mod page;

mod notebook;

use super::{list, log};
use crate::call::{Call, unexpected};
use crate::catalog::{Effect, Tool};
use crate::hint::{Hint, with_hint};
use crate::{Image, OutcomeView, ToolOutcome};
use glovebox_proto::{Code, Fault, JobId, Reply, Request, log_gap, visible};
use glovebox_sandbox::Incoming;
use kind::Picture;
use page::Page;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::json;
use std::fmt::Write as _;
use std::time::Duration;

/// Default maximum number of lines.
const USUAL_LINES: u64 = 2000;
/// Bytes that are examined to tell text from binary data.
const SNIFF_BYTES: usize = 8 << 10;
/// Maximum number of names that are suggested for a missing one.
const MAX_SUGGESTIONS: usize = 5;
/// Maximum size of an image that models receive, in bytes. Models accept 5 MB of base64.
const MAX_IMAGE_BYTES: u64 = 3_750_000;
/// Maximum width and height of an image that models receive, in pixels.
const MAX_IMAGE_SIDE: u32 = 8000;
/// Maximum size of a notebook that is rendered and edited by cells, in bytes.
pub(super) const MAX_NOTEBOOK_BYTES: u64 = 16 << 20;
/// Bytes that are read for one page. Lines further in must be found by other tools.
const MAX_PASSED_BYTES: u64 = 512 << 20;
/// Bytes of a job's log that are fetched at a time.
const LOG_BYTES: usize = 512 << 10;

/// Returns the media type of an image that models accept, recognized by its first bytes. `None` for
/// other data, and for an image that is too large.
pub fn picture(bytes: &[u8]) -> Option<&'static str> {
    let picture = Picture::of(bytes)?;
    (!is_large(picture, bytes, bytes.len() as u64)).then(|| picture.mime())
}

/// Returns true if a file of this name is treated as a Jupyter notebook.
pub(super) fn is_notebook(path: &str) -> bool {
    path.to_ascii_lowercase().ends_with(".ipynb")
}

fn is_large(picture: Picture, bytes: &[u8], size: u64) -> bool {
    let pixels = picture.size(bytes);
    size > MAX_IMAGE_BYTES
        || pixels.is_some_and(|(width, height)| width.max(height) > MAX_IMAGE_SIDE)
}

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Read {
    /// File or directory, absolute or relative to the workspace; or `job:ID` for the output of a job.
    #[serde(alias = "file_path", alias = "file", alias = "filename")]
    path: String,
    /// First line wanted, counted from 1.
    #[serde(default)]
    offset: Option<u64>,
    /// Most lines wanted (2000 unless given).
    #[serde(default)]
    limit: Option<u64>,
}

impl Tool for Read {
    const NAME: &'static str = "Read";
    const ALIASES: &'static [&'static str] = &["file_read", "read_file", "cat", "view"];
    const DESCRIPTION: &'static str = "Reads a text file with line numbers, shows a picture (PNG, JPEG, GIF, \
        WebP) or a Jupyter notebook, lists a directory, or reads what a job has written. Long files come in \
        parts: the answer says which offset to ask for next. Other binary files are named, not shown.";
    const EFFECT: Effect = Effect::Reads;

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        if let Some(job) = log::job_of(&self.path)? {
            return self.log(call, job);
        }
        match self.file(call) {
            Err(fault) if fault.code == Code::IsDirectory => {
                list::list(call, &self.path, list::USUAL_ENTRIES)
            }
            Err(fault) if fault.code == Code::NotFound => Err(suggest(call, &self.path, fault)),
            read => read,
        }
    }
}

impl Read {
    fn page(&self) -> Page {
        Page::new(
            self.offset.unwrap_or(1).max(1),
            self.limit.unwrap_or(USUAL_LINES),
        )
    }

    fn file(&self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        let request = Request::FileRead {
            path: ByteBuf::from(self.path.as_bytes()),
            offset: 0,
            max_bytes: None,
        };
        let mut stream = call.sandbox().open(request)?;
        let mut page = self.page();
        let mut hasher = blake3::Hasher::new();
        let mut passed = 0;
        let mut sniffed = 0;
        let size = loop {
            let bytes = match call.next(&mut stream, Duration::ZERO)? {
                Incoming::Data { bytes, .. } => bytes,
                Incoming::Reply(Ok(Reply::Read { size, .. })) => break Some(size),
                Incoming::Reply(Ok(other)) => return Err(unexpected(&other)),
                Incoming::Reply(Err(fault)) => return Err(fault),
            };
            if passed == 0 {
                if let Some(picture) = Picture::of(&bytes) {
                    drop(stream);
                    return self.picture(call, picture);
                }
                if is_notebook(&self.path) {
                    drop(stream);
                    return self.notebook(call);
                }
            }
            let look = &bytes[..bytes.len().min(SNIFF_BYTES - sniffed)];
            sniffed += look.len();
            if look.contains(&0) || bytes.starts_with(b"%PDF-") && passed == 0 {
                drop(stream);
                return self.binary(call, &bytes);
            }
            passed += bytes.len() as u64;
            hasher.update(&bytes);
            page.take(&bytes);
            if page.is_full() {
                // Leaving the loop drops the stream, which stops the guest from sending the rest.
                break None;
            }
            if passed > MAX_PASSED_BYTES {
                let message = format!(
                    "{} has more than {MAX_PASSED_BYTES} bytes before the end of what is wanted",
                    visible::line_of_text(&self.path)
                );
                let hint = call.hint([
                    Hint::new(
                        &["Grep", "Bash"],
                        "use Grep, or Bash with `tail -c`, `head -c` and the like",
                    ),
                    Hint::new(&["Grep"], "use Grep"),
                    Hint::new(&["Bash"], "use Bash with `tail -c`, `head -c` and the like"),
                ]);
                return Err(with_hint(Fault::failed(Code::TooLarge, message), hint));
            }
        };
        if page.is_whole() && size == Some(passed) {
            call.session.ledger.note(&self.path, hasher.finalize());
        }
        Ok(self.finish(page, size))
    }

    fn finish(&self, page: Page, bytes: Option<u64>) -> ToolOutcome {
        let page = page.finish();
        let facts = json!({
            "path": self.path,
            "first_line": page.first,
            "lines": page.shown,
            "next": page.next,
            "bytes": bytes,
        });
        ToolOutcome::ok(page.text, facts)
    }

    fn size(&self, call: &Call<'_>) -> Result<u64, Fault> {
        let request = Request::Stat {
            path: ByteBuf::from(self.path.as_bytes()),
            follow: true,
        };
        match call.ask(request)? {
            Reply::Stat(stat) => Ok(stat.size),
            other => Err(unexpected(&other)),
        }
    }

    fn binary(&self, call: &Call<'_>, start: &[u8]) -> Result<ToolOutcome, Fault> {
        let (what, size) = (kind::name(start), self.size(call)?);
        let path = visible::line_of_text(&self.path);
        let mut text = format!("[{path} is not text: {what}, {size} bytes]");
        if start.starts_with(b"%PDF-") {
            let hint = Hint::new(
                &["Bash"],
                "\n[`pdftotext FILE -` in Bash shows its text, if the sandbox has it]",
            );
            text.push_str(&call.hint([hint]).unwrap_or_default());
        }
        let facts = json!({ "path": self.path, "kind": what, "bytes": size });
        Ok(ToolOutcome::ok(text, facts))
    }

    fn picture(&self, call: &Call<'_>, picture: Picture) -> Result<ToolOutcome, Fault> {
        let (bytes, size) = call.read(&self.path, MAX_IMAGE_BYTES)?;
        // The file may have been replaced since its first bytes were read.
        let picture = Picture::of(&bytes).unwrap_or(picture);
        let pixels = picture.size(&bytes);
        let (path, mime) = (visible::line_of_text(&self.path), picture.mime());
        let dimensions = pixels.map_or_else(String::new, |(width, height)| {
            format!(", {width} x {height}")
        });
        if is_large(picture, &bytes, size) {
            let message = format!(
                "{path} is a picture ({mime}{dimensions}, {size} bytes) too large to be shown"
            );
            return Err(Fault::failed(Code::TooLarge, message).remedy(format!(
                "make a smaller copy of at most {MAX_IMAGE_BYTES} bytes and {MAX_IMAGE_SIDE} pixels a side, \
                 and read that"
            )));
        }
        let facts = json!({
            "path": self.path,
            "kind": mime,
            "bytes": size,
            "width": pixels.map(|(width, _)| width),
            "height": pixels.map(|(_, height)| height),
        });
        let mut outcome = ToolOutcome::ok(
            format!("[{path} is a picture: {mime}{dimensions}, {size} bytes]"),
            facts,
        );
        outcome.images.push(Image { mime, bytes });
        Ok(outcome.with_view(OutcomeView::Image))
    }

    fn notebook(&self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        let (bytes, size) = call.read(&self.path, MAX_NOTEBOOK_BYTES)?;
        let rendered = notebook::render(&bytes);
        let mut page = self.page();
        // A file that is not a notebook in spite of its name is shown as text.
        page.take(rendered.as_deref().map_or(&bytes[..], str::as_bytes));
        if rendered.is_none() && page.is_whole() && size == bytes.len() as u64 {
            call.session.ledger.note(&self.path, blake3::hash(&bytes));
        }
        Ok(self.finish(page, Some(size)))
    }

    /// Reads the output of a job, as far as it is kept.
    fn log(&self, call: &Call<'_>, job: JobId) -> Result<ToolOutcome, Fault> {
        let mut page = self.page();
        let mut offset = 0;
        let mut gap = None;
        loop {
            let part = log::part(call, job, offset, LOG_BYTES, 0)?;
            if part.start > offset {
                let lost = part.start - offset;
                page.take(b"\n");
                gap = Some((page.line(), lost));
                page.take(log_gap(lost).trim_start().as_bytes());
            }
            page.take(&part.bytes);
            offset = part.next();
            if page.is_full() || part.bytes.is_empty() || offset >= part.total {
                let mut outcome = self.finish(page, Some(part.total));
                if let Some((line, bytes)) = gap {
                    let _ = write!(
                        outcome.text,
                        "\n[line {line} stands for {bytes} bytes that are not kept any more: later lines of the \
                         job have smaller numbers here than they were written with]"
                    );
                }
                return Ok(outcome);
            }
        }
    }
}

/// Returns a hint on how to find a file. `None` without tools for that.
fn finds(call: &Call<'_>) -> Option<String> {
    call.hint([
        Hint::new(&["Glob", "List"], "find it with Glob or List"),
        Hint::new(&["Glob"], "find it with Glob"),
        Hint::new(&["List"], "find it with List"),
    ])
}

/// Adds similar names in the same directory to the fault, or else a hint on how to find the file.
fn suggest(call: &Call<'_>, path: &str, fault: Fault) -> Fault {
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    let parent = if parent.is_empty() { "/" } else { parent };
    let listed = call.ask(Request::List {
        path: ByteBuf::from(parent.as_bytes()),
        max_entries: 1000,
    });
    let Ok(Reply::List { entries, .. }) = listed else {
        return with_hint(fault, finds(call));
    };
    let wanted = name.to_lowercase();
    let mut near: Vec<(usize, String)> = entries
        .iter()
        .map(|entry| visible::line(&entry.name))
        .map(|other| (strsim::osa_distance(&wanted, &other.to_lowercase()), other))
        .filter(|(distance, other)| *distance * 2 <= name.len().max(other.len()))
        .collect();
    near.sort();
    near.truncate(MAX_SUGGESTIONS);
    if near.is_empty() {
        return with_hint(fault, finds(call));
    }
    let names: Vec<_> = near
        .into_iter()
        .map(|(_, name)| format!("`{name}`"))
        .collect();
    fault.remedy(format!("beside it there is {}", names.join(", ")))
}
