//! `glovebox bundle dev`: checks a bundle each time its file is saved, and prints the problems in
//! the terminal and on a page that also calls its tools.

use super::file::ReadBundle;
use super::{LOCAL_TENANT, call, check, host_grant, joined, local_context, read};
use crate::args::BundleDevArgs;
use crate::cmd::Cx;
use crate::exit::{CommandError, CommandResult};
use crate::streams::Signals;
use glovebox_bundle::{Bundle, Tool};
use glovebox_runner::{Engine, RunnerConfig, ToolRunner};
use glovebox_server::{BundlePage, serve_bundle_page};
use glovebox_session::bundle::{BundleTools, CallContext};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

/// Interval at which the file is checked: prompt for a person who saves, at next to no cost.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Identity of one saved state of a file. Editors write in place, or rename a new file over the old
/// one.
#[derive(Debug, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    bytes: u64,
    modified: Option<SystemTime>,
}

/// Checks the bundle until the user interrupts.
pub(super) fn run(cx: &Cx, args: &BundleDevArgs) -> CommandResult {
    if args.bundle.file.as_os_str() == OsStr::new("-") {
        return Err(CommandError::usage(
            "standard input cannot be watched",
            "name a file, or use `glovebox bundle check -`",
        ));
    }
    // Handle signals first: the default action would end the process without removing the sandboxes
    // of called tools.
    let signals = Signals::take_over()?;
    // The first read must succeed. Later a missing file may be about to be written, so it is
    // skipped.
    let path = cx.host.directory().join(&args.bundle.file);
    let version = version_of(&path);
    let first = read(cx, &args.bundle)?;
    let page = Arc::new(AuthorPage::new(cx, args, &first)?);
    // The server holds a weak reference: the runner must end with this function, or with the last
    // running call.
    let held: Weak<AuthorPage> = Arc::downgrade(&page);
    let served = serve_bundle_page(held, args.port)?;
    check::tell(&first, args.json)?;
    cx.talk.note(format_args!(
        "checking again when the file is saved; Ctrl-C ends; the page to try tools is {}",
        served.url
    ));
    watch(cx, args, &path, version, &page, &signals)
}

fn watch(
    cx: &Cx,
    args: &BundleDevArgs,
    path: &Path,
    mut seen: Option<FileVersion>,
    page: &AuthorPage,
    signals: &Signals,
) -> CommandResult {
    loop {
        std::thread::sleep(LOOK_EVERY);
        signals.check()?;
        let version = version_of(path);
        if version == seen || version.is_none() {
            continue;
        }
        seen = version;
        match read(cx, &args.bundle) {
            Ok(read) => {
                page.show(&read);
                check::tell(&read, args.json)?;
            }
            Err(error) => cx
                .talk
                .warning(format_args!("not checked: {}", error.fault.message)),
        }
    }
}

fn version_of(path: &Path) -> Option<FileVersion> {
    let found = fs::metadata(path).ok()?;
    Some(FileVersion {
        inode: found.ino(),
        bytes: found.len(),
        modified: found.modified().ok(),
    })
}

/// State behind the page: the displayed bundle, and the runner that calls its tools.
#[derive(Debug)]
struct AuthorPage {
    runner: ToolRunner,
    shown: Mutex<PageState>,
}

/// Result of the last read.
#[derive(Debug)]
struct PageState {
    state: Value,
    /// Bundle whose tools can be called. None if it has errors.
    bundle: Option<Arc<Bundle>>,
}

impl AuthorPage {
    fn new(cx: &Cx, args: &BundleDevArgs, read: &ReadBundle) -> Result<Self, CommandError> {
        let settings = cx.load_settings(None)?;
        let config = RunnerConfig {
            hosts: host_grant(cx, &args.hosts, &read.bundle)?,
            ..RunnerConfig::default()
        };
        Ok(Self {
            runner: ToolRunner::new(Arc::new(cx.registry(&settings)?), config)?,
            shown: Mutex::new(shown(read, 1)),
        })
    }

    fn show(&self, read: &ReadBundle) {
        let mut now = self.lock();
        let number = now.state["number"].as_u64().unwrap_or_default();
        *now = shown(read, number + 1);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PageState> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BundlePage for AuthorPage {
    fn state(&self, shown: Option<u64>) -> Option<Value> {
        let now = self.lock();
        let is_shown = now.state["number"].as_u64() == shown;
        (!is_shown).then(|| now.state.clone())
    }

    fn call(&self, wanted: &Value) -> Value {
        let failed = |message: &str| json!({ "success": false, "message": message, "data": {} });
        let Some(bundle) = self.lock().bundle.clone() else {
            return failed("the bundle has errors, so none of its tools can be called");
        };
        let (agent, name) = (wanted["agent"].as_str(), wanted["tool"].as_str());
        let mut callable = callable(&bundle);
        let found = callable.find(|(key, tool)| *key == agent && Some(tool.name.as_str()) == name);
        let Some((_, tool)) = found else {
            return failed("the bundle has no such tool any more");
        };
        let tools = match BundleTools::new(std::slice::from_ref(tool)) {
            Ok(tools) => tools,
            Err(notes) => return failed(&joined(&notes)),
        };
        let context = CallContext {
            tenant: LOCAL_TENANT,
            id: "call-1",
            context: &local_context(None),
            engine: Engine::Quickjs,
            timeout: None,
        };
        let never = AtomicBool::new(false);
        let done = tools.call(
            &self.runner,
            &tool.name,
            &context,
            &wanted["arguments"],
            &never,
        );
        match done {
            Ok(done) => json!({
                "success": true, "message": "called", "data": call::done_json(&done, Engine::Quickjs),
            }),
            Err(failure) => json!({
                "success": false,
                "message": format!("{}: {failure}", failure.as_str()),
                "data": call::failure_json(&failure),
            }),
        }
    }
}

fn shown(read: &ReadBundle, number: u64) -> PageState {
    let is_refused = read.error_count() > 0;
    let tools: Vec<Value> = callable(&read.bundle)
        .map(|(agent, tool)| {
            json!({
                "agent": agent,
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.input_schema,
            })
        })
        .collect();
    let counts = read.counts().unwrap_or_else(|| "nothing wrong".to_owned());
    let state = json!({
        "number": number,
        "file": read.name,
        "message": format!("{}, {counts}", super::content(&read.bundle)),
        "error_count": read.error_count(),
        "problems": read.problem_list(),
        "tools": if is_refused { Vec::new() } else { tools },
    });
    PageState {
        state,
        bundle: (!is_refused).then(|| Arc::new(read.bundle.clone())),
    }
}

/// Returns the tools with code here, each with the key of its agent.
fn callable(bundle: &Bundle) -> impl Iterator<Item = (Option<&str>, &Tool)> {
    let of_agents = bundle.agents.iter().flat_map(|agent| {
        let key = Some(agent.key.as_str());
        agent.tools.iter().map(move |tool| (key, tool))
    });
    let alone = bundle.tools.iter().map(|tool| (None, tool));
    of_agents.chain(alone).filter(|(_, tool)| tool.executable)
}
