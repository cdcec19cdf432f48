//! A manifest as the file of `glovebox bundle`: reads its bundles, checks each against the
//! manifest, and joins them into one.

use super::extractor;
use super::file::{MAX_FILE_BYTES, ReadBundle, ReadPart, not_extracted, options, read_most};
use crate::args::{BundleFile, ExtractArg};
use crate::cmd::Cx;
use crate::exit::CommandError;
use crate::render::{escape, escape_text};
use glovebox_bundle::{Bundle, MAX_MANIFEST_BYTES, Manifest, ManifestBundle, Problem};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde_json::json;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Returns true if a file is treated as a manifest: its extension is `json`.
pub(super) fn is_manifest(file: &Path) -> bool {
    file.extension()
        .is_some_and(|extension| extension == "json")
}

/// Reads every bundle of a manifest.
pub(super) fn read(cx: &Cx, args: &BundleFile, name: String) -> Result<ReadBundle, CommandError> {
    if args.source_map.is_some() {
        return Err(CommandError::usage(
            "--source-map is the map of one bundle, and a manifest names several",
            "give the bundle itself: glovebox bundle check dist/bundles/NAME.js --source-map FILE",
        ));
    }
    if args.extract != ExtractArg::Syntax {
        return Err(CommandError::usage(
            "the bundles of a manifest are read from their syntax only",
            "give the bundle itself: glovebox bundle check dist/bundles/NAME.js --extract=sandbox",
        ));
    }
    let text = text(cx, &args.file, &name)?;
    let manifest = match Manifest::parse(&text) {
        Ok(manifest) => manifest,
        Err(problems) => {
            return Ok(ReadBundle {
                parts: vec![ReadPart {
                    name: name.clone(),
                    problems,
                }],
                name,
                bundle: Bundle::empty(),
                manifest: Some(json!(null)),
            });
        }
    };
    let directory = directory(cx, &args.file);
    let extractor = extractor()?;
    let (mut bundle, mut own, mut parts) = (Bundle::empty(), Vec::new(), Vec::new());
    for entry in &manifest.bundles {
        let source = match open(&directory, entry) {
            Ok(source) => source,
            Err(error) => {
                own.push(manifest.missing(entry, &error.to_string()));
                continue;
            }
        };
        let file = escape_text(&entry.file);
        let extraction = extractor
            .extract(&source, options(args, Path::new(&entry.file)))
            .map_err(|error| not_extracted(&file, &error))?;
        own.extend(manifest.check(entry, &source, &extraction.bundle));
        let agents = entry.agents(&extraction.bundle).into_iter().cloned();
        bundle.agents.extend(agents);
        bundle.format = extraction.bundle.format.or(bundle.format);
        parts.push(ReadPart {
            name: file,
            problems: extraction.problems,
        });
    }
    let bundles = manifest.bundles.iter().map(|entry| {
        json!({ "id": entry.id, "hash": entry.hash, "file": entry.file, "size": entry.size })
    });
    let told = json!({
        "version": manifest.version,
        "compiledAt": manifest.compiled_at,
        "compilerVersion": manifest.compiler_version,
        "bundles": bundles.collect::<Vec<_>>(),
    });
    parts.insert(
        0,
        ReadPart {
            name: name.clone(),
            problems: own,
        },
    );
    Ok(ReadBundle {
        name,
        bundle,
        parts,
        manifest: Some(told),
    })
}

/// Returns the name and the bytes of the bundle with an agent, or of the only bundle, checked
/// against the manifest.
pub(super) fn bundle_of(
    cx: &Cx,
    file: &Path,
    agent: Option<&str>,
) -> Result<(String, Vec<u8>), CommandError> {
    let name = escape(file.as_os_str().as_bytes());
    let text = text(cx, file, &name)?;
    let manifest =
        Manifest::parse(&text).map_err(|problems| refusal(&name, problems.first(), "read"))?;
    let Some(entry) = manifest.bundle_of(agent) else {
        let ids: Vec<String> = manifest
            .bundles
            .iter()
            .map(|entry| escape_text(&entry.id))
            .collect();
        return Err(CommandError::usage(
            match agent {
                Some(agent) => format!("the manifest has no bundle `{}`", escape_text(agent)),
                None => "the manifest has several bundles".to_owned(),
            },
            format!("name one with --agent: {}", ids.join(", ")),
        ));
    };
    let problem = match open(&directory(cx, file), entry) {
        Err(error) => Some(manifest.missing(entry, &error.to_string())),
        Ok(source) => {
            // The declarations are checked when the bundle is run.
            let problems = manifest.check(entry, &source, &Bundle::empty());
            match problems.into_iter().find(|problem| problem.code.is_error()) {
                None => return Ok((entry.file.clone(), source)),
                problem => problem,
            }
        }
    };
    Err(refusal(&name, problem.as_ref(), "run"))
}

fn refusal(name: &str, problem: Option<&Problem>, what: &str) -> CommandError {
    let reason = problem.map_or("it is none", |problem| problem.reason.as_str());
    CommandError::usage(
        format!("nothing of {name} is {what}: {reason}"),
        format!("`glovebox bundle check {name}` shows where"),
    )
}

fn directory(cx: &Cx, file: &Path) -> std::path::PathBuf {
    let parent = file.parent().unwrap_or_else(|| Path::new(""));
    cx.host.directory().join(parent)
}

fn text(cx: &Cx, file: &Path, name: &str) -> Result<Vec<u8>, CommandError> {
    File::open(cx.host.directory().join(file))
        .and_then(|file| read_most(file, MAX_MANIFEST_BYTES))
        .map_err(|error| {
            CommandError::io(format!("read {name}"), &error)
                .remedy("give the manifest that the compiler wrote, such as dist/manifest.json")
        })
}

// TRUST: the manifest's author chose this path. Parsing refused `..` in it, and it is resolved
// below the directory of the manifest only, through no symbolic link.
fn open(directory: &Path, entry: &ManifestBundle) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let root = rustix::fs::open(directory, flags | OFlags::DIRECTORY, Mode::empty())?;
    let file = rustix::fs::openat2(
        root,
        entry.file.as_str(),
        flags | OFlags::NONBLOCK,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )?;
    let file = File::from(file);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    read_most(file, MAX_FILE_BYTES)
}
