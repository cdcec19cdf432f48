//! `glovebox bundle`: agents and tools that a JavaScript file declares. One file per action; here what they share: the
//! file, its extraction in a confined process, and the words for its problems.

mod call;
mod check;
mod dev;
mod run;
mod show;

use super::{Cx, run::supervisor};
use crate::args::{BundleAction, BundleArgs, BundleFile, BundleHosts};
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, escape, plural};
use glovebox_bundle::{
    Bundle, ConfinedExtractor, EXTRACT_COMMAND, ExtractError, ExtractLimits, ExtractOptions,
    Extraction, Language, MAX_SOURCE_BYTES, Tool,
};
use glovebox_proto::{Code, Fault};
use glovebox_runner::HostGrant;
use glovebox_sandbox::egress::Policy;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;

/// The bundle has errors.
const REFUSED: u8 = 2;

/// Does what is asked.
pub(crate) fn run(cx: &Cx, args: &BundleArgs) -> CommandResult {
    let (ended, is_json, file) = match &args.action {
        BundleAction::Check(args) => (check::run(cx, args), args.json, &args.bundle.file),
        BundleAction::Dev(args) => (dev::run(cx, args), args.json, &args.bundle.file),
        BundleAction::Show(args) => (show::run(cx, args), args.json, &args.bundle.file),
        BundleAction::Call(args) => (call::run(cx, args), args.json, &args.bundle.file),
        BundleAction::Run(args) => return run::run(cx, args),
    };
    render::answer_failure(ended, is_json, || json!({ "file": file.to_string_lossy() }))
}

/// A bundle that was read, whatever is wrong with it.
struct ReadBundle {
    /// The file as the user named it, safe to show.
    name: String,
    extraction: Extraction,
}

/// Reads the file and extracts it in a process of its own.
fn read(cx: &Cx, args: &BundleFile) -> Result<ReadBundle, CommandError> {
    let name = escape(args.file.as_os_str().as_bytes());
    let source = source(cx, args, &name)?;
    let options = ExtractOptions {
        language: Language::of_file(&args.file.to_string_lossy()),
        strict_schema: args.strict_schema,
    };
    let extraction = extractor()?
        .extract(&source, options)
        .map_err(|error| not_extracted(&name, &error))?;
    Ok(ReadBundle { name, extraction })
}

/// Reads bundles with this program, each in a process that can do nothing else.
pub(crate) fn extractor() -> Result<ConfinedExtractor, CommandError> {
    let command = [supervisor()?.exe.into_os_string(), EXTRACT_COMMAND.into()];
    Ok(ConfinedExtractor::new(command, ExtractLimits::default()))
}

/// The hosts that tools may reach.
fn host_grant(hosts: &BundleHosts) -> Result<HostGrant, CommandError> {
    let policy = Policy::new(&hosts.allow, &hosts.deny)
        .map_err(|error| CommandError::usage(error.to_string(), "name fewer hosts and ports"))?;
    Ok(HostGrant {
        policy,
        ..HostGrant::default()
    })
}

/// The bytes of the file, one more than are taken at most.
fn source(cx: &Cx, args: &BundleFile, name: &str) -> Result<Vec<u8>, CommandError> {
    let mut bytes = Vec::new();
    let most = MAX_SOURCE_BYTES as u64 + 1;
    let read = if args.file.as_os_str() == OsStr::new("-") {
        io::stdin().take(most).read_to_end(&mut bytes)
    } else {
        let path = cx.host.directory().join(&args.file);
        File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes))
    };
    read.map_err(|error| {
        CommandError::io(format!("read {name}"), &error)
            .remedy("give the file that a bundler made, such as dist/agents.js")
    })?;
    Ok(bytes)
}

fn not_extracted(name: &str, error: &ExtractError) -> CommandError {
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
    /// All problems as text, and how many there are.
    fn problems(&self) -> String {
        let mut text = String::new();
        for problem in &self.extraction.problems {
            text.push_str(&problem.render(&self.name));
            text.push('\n');
        }
        text
    }

    fn error_count(&self) -> usize {
        self.extraction.errors().count()
    }

    /// `2 errors, 1 warning`, or none.
    fn counts(&self) -> Option<String> {
        let warnings = self.extraction.warnings().count();
        match (self.error_count(), warnings) {
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

    /// Errors and warnings for programs.
    fn problems_json(&self) -> Value {
        json!({
            "file": self.name,
            "errors": self.extraction.errors().collect::<Vec<_>>(),
            "warnings": self.extraction.warnings().collect::<Vec<_>>(),
        })
    }

    /// Shows the problems of a bundle with errors, and says no.
    fn refuse(&self, is_json: bool) -> CommandResult {
        let counts = self.counts().unwrap_or_default();
        if is_json {
            let message = format!("{}: {counts}", self.name);
            render::print(render::envelope(false, &message, &self.problems_json()))?;
        } else {
            render::print(format_args!("{}{}: {counts}\n", self.problems(), self.name))?;
        }
        Ok(REFUSED)
    }
}

/// `1 agent, 3 tools`: what a bundle has.
fn content(bundle: &Bundle) -> String {
    let tools = bundle.agents.iter().map(|agent| agent.tools.len());
    let tools = tools.sum::<usize>() + bundle.tools.len();
    let tools = plural(tools, "tool", "tools");
    if bundle.agents.is_empty() {
        tools
    } else {
        let agents = plural(bundle.agents.len(), "agent", "agents");
        format!("{agents}, {tools}")
    }
}

/// The names of tools, those without code here marked.
fn tool_names(tools: &[Tool]) -> String {
    if tools.is_empty() {
        return "no tools".to_owned();
    }
    let names: Vec<String> = tools
        .iter()
        .map(|tool| match tool.kind {
            glovebox_bundle::ToolKind::Function => render::escape_text(&tool.name),
            glovebox_bundle::ToolKind::Client => {
                format!("{} (run by the caller)", render::escape_text(&tool.name))
            }
            glovebox_bundle::ToolKind::Provider => {
                format!("{} (run by the provider)", render::escape_text(&tool.name))
            }
        })
        .collect();
    names.join(", ")
}

/// `gateway: gpt-4`, or only the name.
fn model(model: &glovebox_bundle::Model) -> String {
    let name = render::escape_text(&model.name);
    match &model.provider {
        Some(provider) => format!("{} ({})", name, render::escape_text(provider)),
        None => name,
    }
}
