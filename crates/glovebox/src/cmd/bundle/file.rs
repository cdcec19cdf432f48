//! The file of a bundle: its bytes, its source map, its extraction in a confined process, and the
//! messages for its problems.

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

/// Maximum number of bytes read from a bundle's file: its source and an inline source map.
pub(super) const MAX_FILE_BYTES: usize = MAX_SOURCE_BYTES + MAX_MAP_BYTES;

/// A bundle that was read, with or without problems.
pub(super) struct ReadBundle {
    /// Name of the file as typed by the user, escaped.
    pub name: String,
    /// Declarations of the bundle; for a manifest, those of all its bundles together.
    pub bundle: Bundle,
    /// The bundle's file, or a manifest and the files that it names, each with its problems.
    pub parts: Vec<ReadPart>,
    /// Data of the manifest about itself and its bundles. None if the file is no manifest.
    pub manifest: Option<Value>,
}

/// A file that was read.
pub(super) struct ReadPart {
    /// Name of the file, escaped.
    pub name: String,
    /// Errors and warnings about the file.
    pub problems: Vec<Problem>,
}

/// Reads the file and extracts it in a separate process.
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
                // Positions in problems refer to the declarations that the run wrote.
                ExtractArg::Sandbox => format!("{name} (as it declares itself when it runs)"),
            },
            problems: extraction.problems,
        }],
        name,
        manifest: None,
    })
}

/// Returns the options for extracting a file.
pub(super) fn options(args: &BundleFile, file: &Path) -> ExtractOptions {
    ExtractOptions {
        language: Language::of_file(&file.to_string_lossy()),
        strict_schema: args.strict_schema,
    }
}

/// Reads the file, at most one byte more than the limit.
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

/// Reads everything, at most `most` bytes and one; the caller detects an oversized input by the
/// additional byte.
pub(super) fn read_most(from: impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the source map that the command line names. None if it names none.
fn source_map(cx: &Cx, args: &BundleFile, source: &[u8]) -> Result<Option<Vec<u8>>, CommandError> {
    let Some(wanted) = &args.source_map else {
        return Ok(None);
    };
    if wanted.as_os_str() != OsStr::new("auto") {
        let name = escape(wanted.as_os_str().as_bytes());
        let file = File::open(cx.host.directory().join(wanted));
        return read_map(file, &name).map(Some);
    }
    // TRUST: the bundle chose this name. It is accepted only for a file in the bundle's own
    // directory, and not through a symbolic link.
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
    /// Formats all problems as text.
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

    /// Counts the problems: `2 errors, 1 warning`. None if there are none.
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

    /// Lists all problems for the page: code, field, reason, and the text of each.
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

    /// Lists errors and warnings for programs; with a manifest, each with its file.
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

    /// Returns true if running the bundle may resolve every error.
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

    /// Prints the problems of a bundle with errors, and returns the exit code of a refusal.
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
