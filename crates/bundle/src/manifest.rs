//! Manifest that lightfast's compiler writes beside its bundles: the file, digest and size of each
//! agent's bundle.
//!
//! ```json
//! {"version": "1.0.0", "compiledAt": "...", "compilerVersion": "0.1.0",
//!  "bundles": [{"id": "support", "hash": "1a2b3c4d", "file": "bundles/support.1a2b3c4d.js",
//!               "size": 1234, "tools": ["search"], "models": ["openai/gpt-4o"]}]}
//! ```
//!
//! In: the manifest's text, then the bytes of each bundle and its extraction. Out: problems with
//! places in the manifest. A manifest is untrusted, as a bundle is. A file that differs from its
//! entry is an error. The tools and models of an entry are only compared: the bundle takes
//! precedence.

use crate::limits::{MAX_MANIFEST_BUNDLES, MAX_MANIFEST_BYTES, MAX_NAME_CHARS};
use crate::model::{Agent, Bundle};
use crate::problem::{Problem, ProblemCode};
use crate::report::{Report, alone};
use crate::source::{Source, quoted};
use oxc_span::Span;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

/// Id of the entry whose bundle contains all agents.
const ALL_AGENTS: &str = "main";
/// Minimum number of digits of a digest.
const MIN_HASH_DIGITS: usize = 8;

/// Parsed manifest.
#[derive(Debug)]
pub struct Manifest<'t> {
    source: Source<'t>,
    /// Version of the format.
    pub version: String,
    /// Time of compilation, unverified.
    pub compiled_at: String,
    /// Version of the compiler, unverified.
    pub compiler_version: String,
    /// Entries of the bundles, in order.
    pub bundles: Vec<ManifestBundle>,
}

/// Entry of one bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestBundle {
    /// Key of the agent, or `main` for a bundle of all agents.
    pub id: String,
    /// First digits of the SHA-256 of the bundle, or of the code inside its wrapper.
    pub hash: String,
    /// Path of the bundle relative to the manifest, with `/` between its parts. No part is `..`.
    pub file: String,
    /// Size of the bundle, in bytes.
    pub size: u64,
    /// Names of its tools, as the compiler understood them.
    pub tools: Vec<String>,
    /// Names of its models, as the compiler understood them.
    pub models: Vec<String>,
    places: EntryPlaces,
}

/// Places of the fields of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EntryPlaces {
    index: usize,
    id: Span,
    hash: Span,
    file: Span,
    size: Span,
    tools: Span,
    models: Span,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawManifest<'a> {
    version: String,
    compiled_at: String,
    compiler_version: String,
    #[serde(borrow)]
    bundles: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawEntry<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    hash: &'a RawValue,
    #[serde(borrow)]
    file: &'a RawValue,
    #[serde(borrow)]
    size: &'a RawValue,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    models: Option<&'a RawValue>,
}

impl<'t> Manifest<'t> {
    /// Parses a manifest.
    ///
    /// # Errors
    /// All problems of the manifest, with places in it.
    pub fn parse(bytes: &'t [u8]) -> Result<Self, Vec<Problem>> {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) if text.len() <= MAX_MANIFEST_BYTES => text,
            Ok(text) => {
                let reason = format!(
                    "the manifest has {} bytes, more than {MAX_MANIFEST_BYTES}",
                    text.len()
                );
                let hint = "Name fewer bundles in it.";
                return Err(vec![alone(ProblemCode::Manifest, reason, hint)]);
            }
            Err(_) => {
                let (reason, hint) = ("the manifest is no UTF-8", "Save it as UTF-8.");
                return Err(vec![alone(ProblemCode::Manifest, reason, hint)]);
            }
        };
        let source = Source::new(text);
        let mut report = Report::new(&source);
        let raw: RawManifest<'_> = match serde_json::from_str(text) {
            Ok(raw) => raw,
            Err(error) => {
                let at = source.offset(error.line(), error.column());
                refuse(
                    &mut report,
                    "",
                    Span::new(at, at),
                    format!("this is no manifest: {}", words(&error)),
                );
                return Err(report.finish());
            }
        };
        if raw.bundles.len() > MAX_MANIFEST_BUNDLES {
            let reason = format!(
                "the manifest has {} bundles, more than {MAX_MANIFEST_BUNDLES}",
                raw.bundles.len()
            );
            let hint = "Make several manifests.";
            return Err(vec![alone(ProblemCode::Manifest, reason, hint)]);
        }
        let mut bundles: Vec<ManifestBundle> = Vec::new();
        for (index, entry) in raw.bundles.iter().enumerate() {
            if let Some(bundle) = read_entry(text, index, entry, &mut report) {
                if let Some(other) = bundles.iter().find(|other| other.id == bundle.id) {
                    let reason = format!("`{}` has two bundles", quoted(&bundle.id));
                    let path = bundle.places.path("id");
                    let refusal = crate::value::Refusal::new(
                        ProblemCode::Manifest,
                        bundle.places.id,
                        reason,
                        HINT,
                    );
                    report.add(&path, &refusal.also(other.places.id, "the other one"));
                }
                bundles.push(bundle);
            }
        }
        let problems = report.finish();
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            source,
            version: raw.version,
            compiled_at: raw.compiled_at,
            compiler_version: raw.compiler_version,
            bundles,
        })
    }

    /// Returns the bundle with an agent: its own, or the one of all agents. Without an agent,
    /// returns the only bundle. `None` if there is none, or several and no agent is given.
    pub fn bundle_of(&self, agent: Option<&str>) -> Option<&ManifestBundle> {
        match (agent, self.bundles.as_slice()) {
            (None, [only]) => Some(only),
            (None, _) => None,
            (Some(agent), all) => {
                let own = all.iter().find(|bundle| bundle.id == agent);
                own.or_else(|| all.iter().find(|bundle| bundle.is_of_all()))
            }
        }
    }

    /// Returns the problem of an entry whose file cannot be read.
    pub fn missing(&self, entry: &ManifestBundle, reason: &str) -> Problem {
        let mut report = Report::new(&self.source);
        let reason = format!("`{}` cannot be read: {reason}", quoted(&entry.file));
        refuse(
            &mut report,
            &entry.places.path("file"),
            entry.places.file,
            reason,
        );
        report.finish().swap_remove(0)
    }

    /// Compares a bundle's file with its entry, and returns the differences.
    pub fn check(&self, entry: &ManifestBundle, bytes: &[u8], bundle: &Bundle) -> Vec<Problem> {
        let mut report = Report::new(&self.source);
        let places = &entry.places;
        if bytes.len() as u64 != entry.size {
            let reason = format!(
                "the file has {} bytes, not the {} that the manifest says",
                bytes.len(),
                entry.size
            );
            refuse(&mut report, &places.path("size"), places.size, reason);
        }
        if !has_digest(bytes, &entry.hash) {
            let reason = format!(
                "the file is another one: its SHA-256 does not begin with {}, and neither does that of the code inside of it",
                quoted(&entry.hash)
            );
            refuse(&mut report, &places.path("hash"), places.hash, reason);
        }
        let agents = entry.agents(bundle);
        if agents.is_empty() && bundle.format.is_some() {
            let reason = format!("the bundle has no agent `{}`", quoted(&entry.id));
            refuse(&mut report, &places.path("id"), places.id, reason);
        }
        compare(&mut report, entry, &agents);
        report.finish()
    }
}

/// Hint of every problem.
const HINT: &str = "Compile the bundles again, with their manifest.";

fn refuse(report: &mut Report<'_>, path: &str, span: Span, reason: impl Into<String>) {
    report.refuse(ProblemCode::Manifest, path, span, reason, HINT);
}

/// Returns the message of an error without its place, which the report shows itself.
fn words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

impl EntryPlaces {
    fn path(&self, field: &str) -> String {
        format!("bundles.{}.{field}", self.index)
    }
}

impl ManifestBundle {
    /// True if the entry is for all agents, judging by its id. An agent may have that id too.
    pub fn is_of_all(&self) -> bool {
        self.id == ALL_AGENTS
    }

    /// Returns the agents of the bundle that the entry is for.
    pub fn agents<'b>(&self, bundle: &'b Bundle) -> Vec<&'b Agent> {
        let agents = bundle.agents.iter();
        if self.is_of_all() && !agents.clone().any(|agent| agent.key == self.id) {
            return agents.collect();
        }
        agents.filter(|agent| agent.key == self.id).collect()
    }
}

fn read_entry(
    text: &str,
    index: usize,
    raw: &RawValue,
    report: &mut Report<'_>,
) -> Option<ManifestBundle> {
    let path = format!("bundles.{index}");
    let whole = span_in(text, raw);
    let entry: RawEntry<'_> = match serde_json::from_str(raw.get()) {
        Ok(entry) => entry,
        Err(error) => {
            refuse(report, &path, whole, words(&error));
            return None;
        }
    };
    let places = EntryPlaces {
        index,
        id: span_in(text, entry.id),
        hash: span_in(text, entry.hash),
        file: span_in(text, entry.file),
        size: span_in(text, entry.size),
        tools: entry.tools.map_or(whole, |tools| span_in(text, tools)),
        models: entry.models.map_or(whole, |models| span_in(text, models)),
    };
    let mut field = Field { report, places };
    let id = field.read::<String>("id", places.id, entry.id);
    let hash = field.read::<String>("hash", places.hash, entry.hash);
    let file = field.read::<String>("file", places.file, entry.file);
    let size = field.read::<u64>("size", places.size, entry.size);
    let list = |field: &mut Field<'_, '_>, name, span, raw: Option<&RawValue>| match raw {
        Some(raw) => field.read::<Vec<String>>(name, span, raw),
        None => Some(Vec::new()),
    };
    let tools = list(&mut field, "tools", places.tools, entry.tools);
    let models = list(&mut field, "models", places.models, entry.models);
    let bundle = ManifestBundle {
        id: id?,
        hash: hash?,
        file: file?,
        size: size?,
        tools: tools?,
        models: models?,
        places,
    };
    let before = report.count();
    if bundle.id.is_empty() || bundle.id.chars().count() > MAX_NAME_CHARS {
        let reason = format!("the name of an agent has 1 to {MAX_NAME_CHARS} characters");
        refuse(report, &places.path("id"), places.id, reason);
    }
    let is_digits = bundle.hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_digits || !(MIN_HASH_DIGITS..=64).contains(&bundle.hash.len()) {
        let reason = format!(
            "`{}` is no digest: it has {MIN_HASH_DIGITS} to 64 hexadecimal digits",
            quoted(&bundle.hash)
        );
        refuse(report, &places.path("hash"), places.hash, reason);
    }
    if !is_below(&bundle.file) {
        let reason = format!(
            "`{}` is no file beside or below the manifest",
            quoted(&bundle.file)
        );
        refuse(report, &places.path("file"), places.file, reason);
    }
    (report.count() == before).then_some(bundle)
}

/// Reader of the fields of one entry.
struct Field<'r, 's> {
    report: &'r mut Report<'s>,
    places: EntryPlaces,
}

impl Field<'_, '_> {
    fn read<'a, T: Deserialize<'a>>(
        &mut self,
        name: &str,
        span: Span,
        raw: &'a RawValue,
    ) -> Option<T> {
        match serde_json::from_str(raw.get()) {
            Ok(value) => Some(value),
            Err(error) => {
                refuse(self.report, &self.places.path(name), span, words(&error));
                None
            }
        }
    }
}

/// Returns the place of a part in the text that it borrows from.
fn span_in(text: &str, part: &RawValue) -> Span {
    let start = (part.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    Span::new(start as u32, (start + part.get().len()) as u32)
}

/// True if a relative path stays in its directory.
fn is_below(path: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    !path.contains(['\\', '\0']) && path.split('/').all(is_part)
}

/// True if the digits begin the digest of the bundle, or of the code inside the compiler's wrapper.
fn has_digest(bytes: &[u8], digits: &str) -> bool {
    let begins = |content: &[u8]| {
        let digest = Sha256::digest(content);
        let text = digest.iter().fold(String::new(), |mut text, byte| {
            let _ = std::fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}"));
            text
        });
        text.starts_with(&digits.to_ascii_lowercase())
    };
    begins(bytes)
        || std::str::from_utf8(bytes)
            .ok()
            .and_then(unwrapped)
            .is_some_and(|code| begins(code.as_bytes()))
}

/// Returns the code inside a wrapper: a function with lines indented by two spaces, or text between
/// two marks. `None` without a wrapper.
fn unwrapped(text: &str) -> Option<String> {
    let between = |start: &str, end: &str| {
        let (_, rest) = text.split_once(start)?;
        rest.rsplit_once(end).map(|(code, _)| code)
    };
    if let Some(code) = between(
        "\nconst compiledConfig = (() => {\n",
        "\n})();\n\n// Bundle export format\n",
    ) {
        let lines = code.split('\n');
        let lines: Option<Vec<&str>> = lines.map(|line| line.strip_prefix("  ")).collect();
        return lines.map(|lines| lines.join("\n"));
    }
    let (_, rest) = text.split_once("\nexport const targetAgentId = \"")?;
    let (_, rest) = rest.split_once("\";\n\n")?;
    let (code, _) = rest.rsplit_once("\n\n// Target agent extraction function\n")?;
    Some(code.to_owned())
}

/// Warns if the tools or models of an entry differ from the bundle. The compiler reads them from
/// names in its source, and leaves a list empty if it cannot.
fn compare(report: &mut Report<'_>, entry: &ManifestBundle, agents: &[&Agent]) {
    let sorted = |mut names: Vec<String>| {
        names.sort_unstable();
        names.dedup();
        names
    };
    let tools = agents.iter().flat_map(|agent| &agent.tools);
    let tools = sorted(tools.map(|tool| tool.name.clone()).collect());
    let models = sorted(
        agents
            .iter()
            .map(|agent| agent.model.name.clone())
            .collect(),
    );
    for (name, span, said, there) in [
        ("tools", entry.places.tools, &entry.tools, tools),
        ("models", entry.places.models, &entry.models, models),
    ] {
        if !said.is_empty() && sorted(said.clone()) != there && !agents.is_empty() {
            let reason = format!(
                "the manifest says {name} {}, the bundle has {}; the bundle counts",
                listed(said),
                listed(&there)
            );
            report.warn(ProblemCode::Ignored, &entry.places.path(name), span, reason);
        }
    }
}

fn listed(names: &[String]) -> String {
    const MAX_NAMES: usize = 10;
    if names.is_empty() {
        return "none".to_owned();
    }
    let shown = names
        .iter()
        .take(MAX_NAMES)
        .map(|name| format!("`{}`", quoted(name)));
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMES {
        text.push_str(", ...");
    }
    text
}
