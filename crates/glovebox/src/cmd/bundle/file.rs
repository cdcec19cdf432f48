//! The file of a bundle: its bytes, its source map, what was read from it in a confined process, and the words for what
//! is wrong with it.

use super::{REFUSED, executed_reader, extractor, manifest};
use crate::args::{BundleFile, ExtractArg};
use crate::cmd::Cx;
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, escape, plural};
use glovebox_bundle::{
    Bundle, ExtractError, ExtractOptions, ExtractedBy, Language, MAX_MAP_BYTES, MAX_SOURCE_BYTES,
    Problem, ProblemCode, source_map_name,
};
use glovebox_proto::{Code, Fault};
use glovebox_session::bundle::ReadBundle as _;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// What is read of a bundle's file: a map inside of it comes on top of its source.
pub(super) const MAX_FILE_BYTES: usize = MAX_SOURCE_BYTES + MAX_MAP_BYTES;

/// A bundle that was read, whatever is wrong with it.
pub(super) struct ReadBundle {
    /// The file as the user named it, safe to show.
    pub name: String,
    /// What it declares; of a manifest, what its bundles declare together.
    pub bundle: Bundle,
    /// Its file, or a manifest and the files that it names, with what is wrong with each.
    pub parts: Vec<ReadPart>,
    /// Of a manifest, what it says of itself and its bundles.
    pub manifest: Option<Value>,
}

/// One file that was read.
pub(super) struct ReadPart {
    /// Its name, safe to show.
    pub name: String,
    /// What is wrong with it, or worth knowing.
    pub problems: Vec<Problem>,
}

/// Reads the file and extracts it in a process of its own.
pub(super) fn read(cx: &Cx, args: &BundleFile) -> Result<ReadBundle, CommandError> {
    let name = escape(args.file.as_os_str().as_bytes());
    if manifest::is_manifest(&args.file) {
        return manifest::read(cx, args, name);
    }
    let source = source(cx, args, &name)?;
    let extraction = match args.extract {
        ExtractArg::Syntax => {
            let map = source_map(cx, args, &source)?;
            extractor()?.extract_with_map(&source, map.as_deref(), options(args, &args.file))
        }
        ExtractArg::Sandbox if args.source_map.is_some() => {
            return Err(CommandError::usage(
                "a bundle that is run has no places in its source, so no source map is used",
                "leave out --source-map or --extract=sandbox",
            ));
        }
        ExtractArg::Sandbox => executed_reader(cx)?.read_bundle(&source, options(args, &args.file)),
    };
    let extraction = extraction.map_err(|error| not_extracted(&name, &error))?;
    Ok(ReadBundle {
        bundle: extraction.bundle,
        parts: vec![ReadPart {
            name: match args.extract {
                ExtractArg::Syntax => name.clone(),
                // Places are those in what it has written down.
                ExtractArg::Sandbox => format!("{name} (as it declares itself when it runs)"),
            },
            problems: extraction.problems,
        }],
        name,
        manifest: None,
    })
}

/// How a file is to be read.
pub(super) fn options(args: &BundleFile, file: &Path) -> ExtractOptions {
    ExtractOptions {
        language: Language::of_file(&file.to_string_lossy()),
        strict_schema: args.strict_schema,
    }
}

/// The bytes of the file, one more than are taken at most.
fn source(cx: &Cx, args: &BundleFile, name: &str) -> Result<Vec<u8>, CommandError> {
    let read = if args.file.as_os_str() == OsStr::new("-") {
        read_most(io::stdin(), MAX_FILE_BYTES)
    } else {
        let path = cx.host.directory().join(&args.file);
        File::open(path).and_then(|file| read_most(file, MAX_FILE_BYTES))
    };
    read.map_err(|error| {
        CommandError::io(format!("read {name}"), &error)
            .remedy("give the file that a bundler made, such as dist/agents.js")
    })
}

/// All that can be read; where that is more than `most`, one byte more than `most`, by which who takes it sees that.
pub(super) fn read_most(from: impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The source map that is asked for.
fn source_map(cx: &Cx, args: &BundleFile, source: &[u8]) -> Result<Option<Vec<u8>>, CommandError> {
    let Some(wanted) = &args.source_map else {
        return Ok(None);
    };
    if wanted.as_os_str() != OsStr::new("auto") {
        let name = escape(wanted.as_os_str().as_bytes());
        let file = File::open(cx.host.directory().join(wanted));
        return read_map(file, &name).map(Some);
    }
    // TRUST: the name is the bundle's word. It is only taken for a file right beside the bundle, which is no link.
    let name = source_map_name(source).ok_or_else(|| {
        CommandError::usage(
            "the bundle names no file as its source map",
            "leave out --source-map for a map inside of the bundle, or name the file: --source-map dist/agents.js.map",
        )
    })?;
    let shown = escape(name.as_bytes());
    let is_beside = !name.contains('/') && !name.contains(':') && name != "." && name != "..";
    if !is_beside || args.file.as_os_str() == OsStr::new("-") {
        return Err(CommandError::usage(
            format!("the source map `{shown}` is no file beside the bundle, so it is not read"),
            "name the file yourself: --source-map FILE",
        ));
    }
    let directory = args.file.parent().unwrap_or_else(|| Path::new(""));
    let path = cx.host.directory().join(directory).join(name);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
    let file = file.map(File::from).and_then(|file| {
        let is_file = file.metadata()?.is_file();
        is_file
            .then_some(file)
            .ok_or_else(|| io::Error::other("it is no file"))
    });
    read_map(file, &shown).map(Some)
}

fn read_map(file: io::Result<File>, name: &str) -> Result<Vec<u8>, CommandError> {
    file.and_then(|file| read_most(file, MAX_MAP_BYTES))
        .map_err(|error| {
            CommandError::io(format!("read the source map {name}"), &error)
                .remedy("give the map that the bundler wrote, such as dist/agents.js.map")
        })
}

pub(super) fn not_extracted(name: &str, error: &ExtractError) -> CommandError {
    let message = format!("{name}: {error}");
    let fault = match error {
        ExtractError::NotConfined(_) => Fault::refused(Code::Unavailable, message)
            .remedy("`glovebox doctor` shows what this machine can do"),
        ExtractError::TimedOut(_) | ExtractError::CpuTime => {
            Fault::failed(Code::TimedOut, message).remedy("make the bundle smaller or simpler")
        }
        ExtractError::OutOfMemory | ExtractError::StackOverflow => {
            Fault::failed(Code::TooLarge, message).remedy("make the bundle smaller or flatter")
        }
        ExtractError::Start(_) => Fault::failed(Code::Io, message),
        _ => Fault::failed(Code::Internal, message)
            .remedy("nothing on this machine was touched; please report it with the bundle"),
    };
    fault.into()
}

impl ReadBundle {
    /// All problems as text.
    pub(super) fn problems(&self) -> String {
        let mut text = String::new();
        for (part, problem) in self.all() {
            text.push_str(&problem.render(&part.name));
            text.push('\n');
        }
        text
    }

    fn all(&self) -> impl Iterator<Item = (&ReadPart, &Problem)> {
        let parts = self.parts.iter();
        parts.flat_map(|part| part.problems.iter().map(move |problem| (part, problem)))
    }

    fn count(&self, is_error: bool) -> usize {
        let all = self.all();
        all.filter(|(_, problem)| problem.code.is_error() == is_error)
            .count()
    }

    pub(super) fn error_count(&self) -> usize {
        self.count(true)
    }

    /// `2 errors, 1 warning`, or none.
    pub(super) fn counts(&self) -> Option<String> {
        match (self.count(true), self.count(false)) {
            (0, 0) => None,
            (0, warnings) => Some(plural(warnings, "warning", "warnings")),
            (errors, 0) => Some(plural(errors, "error", "errors")),
            (errors, warnings) => Some(format!(
                "{}, {}",
                plural(errors, "error", "errors"),
                plural(warnings, "warning", "warnings")
            )),
        }
    }

    /// All problems as a page shows them: code, field, reason, and the text of each.
    pub(super) fn problem_list(&self) -> Vec<Value> {
        let told = self.all().map(|(part, problem)| {
            json!({
                "code": problem.code,
                "path": problem.path,
                "reason": problem.reason,
                "is_error": problem.code.is_error(),
                "text": problem.render(&part.name),
            })
        });
        told.collect()
    }

    /// Errors and warnings for programs; with a manifest, each with its file.
    pub(super) fn problems_json(&self) -> Value {
        let list = |is_error| {
            let all = self.all();
            let some = all.filter(|(_, problem)| problem.code.is_error() == is_error);
            some.map(|(part, problem)| {
                let mut data = json!(problem);
                if self.manifest.is_some() {
                    data["file"] = json!(part.name);
                }
                data
            })
            .collect::<Vec<_>>()
        };
        let mut data = json!({ "file": self.name, "errors": list(true), "warnings": list(false) });
        if let Some(manifest) = &self.manifest {
            data["manifest"] = manifest.clone();
        }
        data
    }

    /// Whether every error is one that running the bundle may settle.
    fn may_be_asked(&self) -> bool {
        self.manifest.is_none()
            && self.all().all(|(_, problem)| {
                !problem.code.is_error()
                    || matches!(
                        problem.code,
                        ProblemCode::NoConfig
                            | ProblemCode::DynamicValue
                            | ProblemCode::Conditional
                            | ProblemCode::Mutated
                            | ProblemCode::Getter
                            | ProblemCode::ComputedKey
                            | ProblemCode::SpreadDynamic
                            | ProblemCode::SchemaUnrecognised
                            | ProblemCode::ToolClosure
                    )
            })
    }

    /// Shows the problems of a bundle with errors, and says no.
    pub(super) fn refuse(&self, is_json: bool) -> CommandResult {
        let counts = self.counts().unwrap_or_default();
        if is_json {
            let message = format!("{}: {counts}", self.name);
            render::print(render::envelope(false, &message, &self.problems_json()))?;
        } else {
            render::print(format_args!("{}{}: {counts}\n", self.problems(), self.name))?;
            if self.bundle.extracted_by == ExtractedBy::Syntax && self.may_be_asked() {
                render::say(
                    "note: a bundle that cannot be read without running it can be run in a sandbox and asked what it \
                     declares: --extract=sandbox",
                );
            }
        }
        Ok(REFUSED)
    }
}
