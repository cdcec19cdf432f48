//! `glovebox demo`: a sample project with a bug, an agent that fixes it, a destructive command, and
//! an untouched machine.
//!
//! All output is measured during the demo. It runs in a native sandbox if one starts, else in a
//! confined one. The destructive command runs only in there, and checks once more, from inside,
//! that it is in a sandbox.

use super::agent::View;
use super::{Cx, TerminalFrontend, run::supervisor, try_start};
use crate::args::DemoArgs;
use crate::exit::{CommandError, CommandResult, Kind};
use crate::render::{self, escape};
use crate::streams::{Signals, StopWatch};
use crate::sync::apply::{self, ApplyOutcome, ApplyTarget, ReviewAnswer};
use crate::sync::{collect_own, patch_error};
use glovebox_agent::{
    AgentLoop, ContextBudget, Conversation, Date, Ending, NetworkReach, NoApproval, Placement,
    PromptFacts, Questions, RecordedModel, RunLimits, Secrets, StopSignal, SystemFacts,
    read_recording, system_prompt,
};
use glovebox_proto::{Code, Exec, Exit, Fault};
use glovebox_sandbox::{Backend, Name, Registry, Sandbox};
use glovebox_session::agent::{ModelConfig, find_model};
use glovebox_session::host::now_unix_ms;
use glovebox_session::spec;
use glovebox_session::work::{self, take_down};
use glovebox_settings::SandboxFlags;
use glovebox_settings::units::human_us;
use glovebox_tools::ToolSession;
use glovebox_workspace::{Filter, patch};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Files of the sample project.
const FILES: [(&str, &str); 4] = [
    ("README.md", include_str!("../../demo/README.md")),
    ("wordstat.sh", include_str!("../../demo/wordstat.sh")),
    ("tests/fox.txt", include_str!("../../demo/tests/fox.txt")),
    ("tests/run.sh", include_str!("../../demo/tests/run.sh")),
];

/// Task of the agent, and its recorded responses.
const TASK: &str = "The tests fail. Find out why and fix it.";
const ANSWERS: &str = include_str!("../../demo/fix.jsonl");

/// Destructive shell script. Its one argument is the path of the copy on the host. Nothing of it
/// can be read from inside: that is the last check before the script removes anything. (The
/// project's own path leads to the workspace inside.)
const DESTRUCTION: &str = r#"
cat "$1/README.md" > /dev/null 2>&1 && { echo "not in a sandbox: nothing was removed"; exit 99; }
workspace=${GLOVEBOX_WORKSPACE:-/workspace}
rm -rf "$workspace"/* "$workspace"/.[!.]* "$HOME"/* "$HOME"/.[!.]* /usr/bin /etc 2> /dev/null
echo "the workspace holds $(find "$workspace" -type f 2> /dev/null | wc -l) files now"
"#;

/// Number of commands that are timed at the end.
const TIMED_RUNS: usize = 50;

/// Runs the demo.
pub(crate) fn run(cx: &Cx, args: &DemoArgs) -> CommandResult {
    let signals = Signals::take_over()?;
    let mut settings = {
        let mut settings = glovebox_settings::Settings {
            state: cx.settings(None)?.state,
            ..Default::default()
        };
        settings.lay_flags(&SandboxFlags {
            no_toolchains: true,
            ..SandboxFlags::default()
        });
        settings
    };
    // Creates the state directory, often below the home, so it must precede the fingerprints.
    let registry = cx.registry(&settings)?;
    choose_backend(&registry, &mut settings)?;
    let project = Project::write()?;
    // The copy must exist before the sandbox starts, as a colleague's copy would.
    let copy = Project::write()?;
    let before = Fingerprints::look(cx, &project.dir)?;
    let thinker = thinker(cx, &settings, args.live)?;
    show(format_args!(
        "Glovebox demo: an agent in a sandbox, with nothing at stake.\n\n1. A sample project with a bug\n   \
         {}: {}, fingerprint {}",
        project.dir.display(),
        render::plural(FILES.len(), "file", "files"),
        before.project
    ))?;

    let spec = spec::resolve_spec(&settings, &cx.host, &project.dir, None)?.spec;
    let clock = Instant::now();
    let sandbox = Arc::new(registry.create(&spec, None).map_err(|fault| {
        let error = CommandError::from(fault);
        if error.fault.remedy.is_some() {
            error
        } else {
            error.remedy("`glovebox doctor` tells what is missing")
        }
    })?);
    work::push_project(
        &TerminalFrontend::new(cx),
        &sandbox,
        &settings,
        &project.dir,
    )?;
    let started = clock.elapsed();
    let story = DemoRun {
        cx,
        sandbox: &sandbox,
        copy: &copy,
        thinker: &thinker,
        signals: &signals,
    };
    let result = story.tell(started);
    let report = sandbox.report();
    let timed = result.as_ref().ok().and_then(|()| median_exec(&sandbox));
    let clock = Instant::now();
    // Remove the sandbox before looking at the result: it must go even if the demo failed.
    take_down(&TerminalFrontend::new(cx), sandbox);
    let gone = clock.elapsed();
    result?;

    let after = Fingerprints::look(cx, &project.dir)?;
    show(format_args!("\n5. Outside, where your files are"))?;
    for (what, was, is) in [
        ("the project", &before.project, &after.project),
        ("names in your home", &before.home, &after.home),
        ("programs in /usr/bin", &before.programs, &after.programs),
    ] {
        let verdict = if was == is { "unchanged" } else { "CHANGED" };
        show(format_args!(
            "   {what:21} before {was}, after {is}: {verdict}"
        ))?;
    }
    if before.project != after.project {
        let fault = Fault::failed(
            Code::Internal,
            "the project outside changed: the sandbox did not hold",
        );
        return Err(CommandError::new(Kind::Failed, fault));
    }
    if let Ok(report) = report {
        show("\n6. What held")?;
        show(indented(&render::report(&report)))?;
    }
    show(format_args!(
        "\n7. Timings\n   sandbox ready in {}, a command in it {}, gone in {}",
        human_us(started.as_micros() as u64),
        timed.map_or_else(
            || "not measured".to_owned(),
            |time| human_us(time.as_micros() as u64)
        ),
        human_us(gone.as_micros() as u64),
    ))?;
    show(
        "\nNow yours: change to a project and type `glovebox agent --sandbox TASK`, or `glovebox run -- COMMAND`.",
    )?;
    Ok(0)
}

/// Chooses another backend with walls if native sandboxes are refused. Only this command may choose
/// by itself: it touches only its own files.
fn choose_backend(
    registry: &Registry,
    settings: &mut glovebox_settings::Settings,
) -> Result<(), CommandError> {
    let Err(refused) = try_start(registry, settings.backend.value) else {
        return Ok(());
    };
    let others = Backend::all()
        .iter()
        .filter(|one| one.is_walled_here() && **one != settings.backend.value);
    let Some(other) = others
        .copied()
        .find(|one| try_start(registry, *one).is_ok())
    else {
        return Err(refused);
    };
    show(format_args!(
        "{}; this demo runs on `{other}`",
        render::escape_text(&refused.fault.message)
    ))?;
    settings.backend.value = other;
    Ok(())
}

/// Returns the model: recorded responses, or the user's own model with `--live`.
fn thinker(
    cx: &Cx,
    settings: &glovebox_settings::Settings,
    is_live: bool,
) -> Result<ModelConfig, CommandError> {
    if is_live {
        return Ok(find_model(&cx.host, settings, None)?);
    }
    Ok(ModelConfig {
        model: Box::new(RecordedModel::new(&read_recording(ANSWERS)?, "recorded")),
        secrets: Secrets::default(),
        price: None,
        budget: ContextBudget::default(),
        asked: None,
    })
}

/// The part of the demo that happens in the sandbox.
struct DemoRun<'a> {
    cx: &'a Cx,
    sandbox: &'a Arc<Sandbox>,
    copy: &'a Project,
    thinker: &'a ModelConfig,
    signals: &'a Signals,
}

impl DemoRun<'_> {
    /// Runs steps 2 to 4.
    fn tell(&self, started: Duration) -> Result<(), CommandError> {
        show(format_args!(
            "\n2. An agent in a sandbox (ready in {}); its model: {}\n   task: {TASK}\n",
            human_us(started.as_micros() as u64),
            render::escape_text(&self.thinker.model.label())
        ))?;
        self.work()?;
        self.signals.check()?;
        self.take_over()?;
        self.signals.check()?;
        self.destroy_everything()
    }

    fn work(&self) -> Result<(), CommandError> {
        let stop = StopSignal::default();
        let wish = stop.clone();
        self.signals.work(StopWatch(Box::new(move |_| wish.ask())));
        let tools = ToolSession::new(Arc::clone(self.sandbox));
        let system = system_prompt(&PromptFacts {
            placement: Placement::Sandbox,
            today: Date::from_unix_ms(now_unix_ms()),
            questions: Questions::Nobody,
            workspace: "/workspace".to_owned(),
            network: NetworkReach::None,
            limits: Vec::new(),
            system: SystemFacts::default(),
            programs: Vec::new(),
            is_read_only: false,
            changes_come_back: true,
            servers: Vec::new(),
            context: None,
            can_run_scripts: true,
            addition: None,
            instructions: Vec::new(),
        });
        let head = AgentLoop {
            model: self.thinker.model.as_ref(),
            tools: &tools,
            approve: &NoApproval,
            system: &system,
            limits: RunLimits::default(),
            price: self.thinker.price,
            budget: self.thinker.budget,
            secrets: &self.thinker.secrets,
            stop,
        };
        let mut view = View::new(self.cx, None, false);
        view.tell_all_on_stdout();
        let verdict = head.run(&mut Conversation::new(TASK), &mut view);
        self.signals.rest();
        match verdict.ending {
            Ending::Completed => Ok(()),
            Ending::Aborted => Err(CommandError::interrupted()),
            _ => Err(verdict
                .fault
                .unwrap_or_else(|| Fault::failed(Code::Internal, verdict.message))
                .into()),
        }
    }

    /// Displays the changes and applies them to the copy.
    fn take_over(&self) -> Result<(), CommandError> {
        show("\n3. What it changed, applied to a copy")?;
        let filter = Filter::new(&["build/".to_owned()], &[])?;
        let taken = collect_own(self.sandbox, &filter, false, &mut |_| {
            std::ops::ControlFlow::Continue(())
        })?;
        let mut text = Vec::new();
        patch::write(&taken.collected, self.cx.talk.patch_style(), &mut text)
            .map_err(|error| patch_error(error, "the terminal"))?;
        show(indented(&String::from_utf8_lossy(&text)))?;
        let goal = ApplyTarget::new(&self.copy.dir);
        let mut meter = render::Meter::new(self.cx.talk, false, self.signals);
        let applied = apply::apply(
            taken,
            goal,
            &supervisor()?,
            &mut |progress| meter.tick(progress),
            &mut |_| Ok::<_, CommandError>(ReviewAnswer::Yes),
        )?;
        drop(meter);
        if let ApplyOutcome::Done(outcome) | ApplyOutcome::Part(outcome) = applied {
            show(format_args!(
                "   applied to {}: {}",
                self.copy.dir.display(),
                render::applied_summary(&outcome)
            ))?;
        }
        Ok(())
    }

    fn destroy_everything(&self) -> Result<(), CommandError> {
        show(
            "\n4. Something destructive, in the same sandbox\n   $ rm -rf \"$workspace\"/* \"$HOME\"/* /usr/bin /etc",
        )?;
        let host_path = self.copy.dir.as_os_str().as_bytes().to_vec();
        let argv: [Vec<u8>; 5] = [
            b"sh".into(),
            b"-c".into(),
            DESTRUCTION.into(),
            b"sh".into(),
            host_path,
        ];
        let gone = self.sandbox.exec(Exec {
            timeout_ms: Some(60_000),
            ..Exec::new(argv)
        })?;
        show(quoted(&gone.stdout, &gone.stderr))?;
        if gone.report.exit == Exit::Code(99) {
            let fault = Fault::failed(Code::Internal, "the sandbox shows what is outside of it");
            return Err(CommandError::new(Kind::Failed, fault));
        }
        self.signals.check()
    }
}

/// Returns the median time of a command that does nothing. None if it cannot run any longer.
fn median_exec(sandbox: &Sandbox) -> Option<Duration> {
    let mut times = Vec::with_capacity(TIMED_RUNS);
    for _ in 0..TIMED_RUNS {
        let clock = Instant::now();
        let done = sandbox.exec(Exec::new(["/usr/bin/true"])).ok()?;
        if done.report.exit != Exit::Code(0) {
            return None;
        }
        times.push(clock.elapsed());
    }
    times.sort();
    times.get(TIMED_RUNS / 2).copied()
}

/// The sample project on the host; removed when dropped.
struct Project {
    dir: PathBuf,
}

impl Project {
    fn write() -> Result<Self, CommandError> {
        let dir = std::env::temp_dir().join(Name::random("glovebox-demo").as_str());
        let fail = |error: std::io::Error| {
            CommandError::io(format!("write the sample to {}", dir.display()), &error)
        };
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(fail)?;
        let project = Self { dir: dir.clone() };
        for (name, text) in FILES {
            let path = dir.join(name);
            let parent = path.parent().unwrap_or(&dir);
            fs::create_dir_all(parent)
                .and_then(|()| fs::write(&path, text))
                .map_err(fail)?;
        }
        Ok(project)
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Fingerprints of the files that must not change.
struct Fingerprints {
    project: String,
    home: String,
    programs: String,
}

impl Fingerprints {
    fn look(cx: &Cx, project: &Path) -> Result<Self, CommandError> {
        let fail = |error: std::io::Error| CommandError::io("read the sample project", &error);
        let mut hasher = blake3::Hasher::new();
        hash_tree(project, &mut hasher).map_err(fail)?;
        Ok(Self {
            project: short(&hasher),
            home: cx.host.home().map_or_else(|| "none".to_owned(), names),
            programs: names(Path::new("/usr/bin")),
        })
    }
}

/// Hashes every path and every byte below `dir`, in the order of paths.
fn hash_tree(dir: &Path, hasher: &mut blake3::Hasher) -> std::io::Result<()> {
    let mut paths = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        hasher.update(path.as_os_str().as_bytes());
        if path.symlink_metadata()?.is_dir() {
            hash_tree(&path, hasher)?;
        } else {
            hasher.update(&fs::read(&path)?);
        }
    }
    Ok(())
}

/// Returns a fingerprint of the names in one directory.
fn names(dir: &Path) -> String {
    let Ok(entries) = fs::read_dir(dir) else {
        return "unreadable".to_owned();
    };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let mut hasher = blake3::Hasher::new();
    for name in names {
        hasher.update(name.as_bytes()).update(&[0]);
    }
    short(&hasher)
}

fn short(hasher: &blake3::Hasher) -> String {
    hasher.finalize().to_hex()[..12].to_owned()
}

fn show(text: impl std::fmt::Display) -> Result<(), CommandError> {
    render::print(format_args!("{text}\n"))
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|line| format!("   {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Formats the output of a command as a quotation, escaped.
fn quoted(stdout: &[u8], stderr: &[u8]) -> String {
    let lines = stdout
        .split(|&byte| byte == b'\n')
        .chain(stderr.split(|&byte| byte == b'\n'));
    let shown: Vec<String> = lines
        .filter(|line| !line.is_empty())
        .take(20)
        .map(|line| format!("   | {}", escape(line)))
        .collect();
    shown.join("\n")
}
