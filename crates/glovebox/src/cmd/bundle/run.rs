//! `glovebox bundle run`: one agent of a bundle, with the bundle's tools and nothing else.

use super::file::read_most;
use super::{LOCAL_TENANT, joined, local_context, manifest};
use crate::args::{BundleRunArgs, ExtractArg};
use crate::cmd::Cx;
use crate::cmd::agent::{AgentTerminal, code_of, open_log, state_of, task, tell};
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, escape_text};
use crate::streams::Signals;
use glovebox_agent::{DeclaredAgent, RunOutcome, SessionState};
use glovebox_bundle::{Agent, Extraction, Language, MAX_SOURCE_BYTES};
use glovebox_runner::{RunnerConfig, ToolRunner};
use glovebox_session::agent::{AgentSession, EarlierSession, ModelConfig, NewSession, find_model};
use glovebox_session::bundle::{
    BundleRun, BundleStore, BundleTools, ModelRules, PLACEMENT, PutError, RunTools, StoreLimits,
    StoredBundle, declared_engine, find_agent, node_view,
};
use glovebox_session::host::now_unix_ms;
use glovebox_settings::{AgentFlags, Settings};
use serde_json::json;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Maximum number of executed bundles that are kept.
const MAX_BUNDLES: usize = 64;

/// Runs the agent.
pub(crate) fn run(cx: &Cx, args: &BundleRunArgs) -> CommandResult {
    let input = task(&args.input)?;
    let mut settings = cx.load_settings(None)?;
    let bundle = load(cx, &settings, args)?;
    let agent = choose(&bundle, args.agent.as_deref())?;
    let mut model = choose_model(cx, &mut settings, args, agent)?;
    model.learn_window();
    let tools = BundleTools::new(&agent.tools)
        .map_err(|notes| CommandError::usage(joined(&notes), "correct the bundle"))?;
    for note in tools.left_out() {
        cx.talk.warning(format_args!("not offered: {note}"));
    }
    let signals = Signals::take_over()?;
    let registry = Arc::new(cx.registry(&settings)?);
    let engine = args.engine.engine();
    let config = RunnerConfig {
        node: node_view(&[engine], &settings, &cx.host),
        hosts: super::host_grant(cx, &args.hosts, &bundle.extraction.bundle)?,
        ..RunnerConfig::default()
    };
    let work = Work {
        cx,
        args,
        terminal: AgentTerminal::new(cx, &signals, args.json),
        run: BundleRun {
            settings: &settings,
            model: &model,
            declared: DeclaredAgent {
                bundle: bundle.hash.to_string(),
                agent: agent.key.clone(),
                engine: declared_engine(engine),
            },
            system: &agent.system,
            tools: &RunTools {
                tools: Arc::new(tools),
                runner: Arc::new(ToolRunner::new(registry, config)?),
                engine,
                tenant: LOCAL_TENANT.to_owned(),
                context: local_context(args.session.as_deref()),
            },
        },
    };
    let mut session = work.open(input)?;
    let outcome = work.run.perform(&work.terminal, &mut session)?;
    work.finish(&session, &outcome)
}

/// Reads the file and stores its declarations, so that its sessions can be resumed.
fn load(cx: &Cx, settings: &Settings, args: &BundleRunArgs) -> Result<StoredBundle, CommandError> {
    let (name, source) = if manifest::is_manifest(&args.file) {
        manifest::bundle_of(cx, &args.file, args.agent.as_deref())?
    } else {
        let path = cx.host.absolute(&args.file);
        let source = File::open(&path)
            .and_then(|file| read_most(file, MAX_SOURCE_BYTES))
            .map_err(|error| CommandError::io(format!("read {}", path.display()), &error))?;
        (args.file.display().to_string(), source)
    };
    let limits = StoreLimits {
        bundles: MAX_BUNDLES,
        evicts: true,
    };
    // Each extraction has a store of its own: their results for the same source differ.
    let state = cx.state_dir(settings)?;
    let store = match args.extract {
        ExtractArg::Syntax => {
            BundleStore::open(&state.join("bundles"), limits, super::extractor()?)?
        }
        ExtractArg::Sandbox => {
            let dir = state.join("bundles-executed");
            BundleStore::open(&dir, limits, super::executed_reader(cx)?)?
        }
    };
    let stored = store.put(&source, Language::of_file(&name), now_unix_ms());
    let stored = stored.map_err(|error| match error {
        PutError::Fault(fault) => CommandError::from(fault),
        PutError::Refused(extraction) => refusal(&extraction, &escape_text(&name)),
    })?;
    for problem in stored.extraction.warnings() {
        cx.talk.note(format_args!(
            "{} {}: {}",
            problem.code,
            escape_text(&problem.path),
            escape_text(&problem.reason)
        ));
    }
    Ok(stored)
}

/// Prints every error of the source, and returns the usage error that counts them.
fn refusal(extraction: &Extraction, name: &str) -> CommandError {
    for problem in extraction.errors() {
        for line in problem.render(name).lines() {
            render::say(line);
        }
    }
    let count = extraction.errors().count();
    let errors = if count == 1 { "error" } else { "errors" };
    CommandError::usage(
        format!("{name} has {count} {errors}, so none of its agents can run"),
        "each error above says what to write instead",
    )
}

/// Returns the named agent, or the only one.
fn choose<'a>(bundle: &'a StoredBundle, asked: Option<&str>) -> Result<&'a Agent, CommandError> {
    match (asked, bundle.extraction.bundle.agents.as_slice()) {
        (None, [only]) => Ok(only),
        (None, [_, _, ..]) => {
            let keys: Vec<&str> = bundle
                .extraction
                .bundle
                .agents
                .iter()
                .map(|agent| agent.key.as_str())
                .collect();
            Err(CommandError::usage(
                format!("the bundle has several agents: {}", keys.join(", ")),
                "name one with --agent",
            ))
        }
        (asked, _) => Ok(find_agent(bundle, asked.unwrap_or_default())?),
    }
}

/// Returns the model that the command line names, or the one that the rules map the agent's model
/// to.
fn choose_model(
    cx: &Cx,
    settings: &mut Settings,
    args: &BundleRunArgs,
    agent: &Agent,
) -> Result<ModelConfig, CommandError> {
    let model = if let Some(model) = &args.model {
        model.clone()
    } else {
        let own = settings.agent.model.value.clone();
        let rules = ModelRules::new(args.allow_model.clone(), own.into_iter().collect());
        rules.resolve(&agent.key, &agent.model).map_err(|error| {
            CommandError::from(error).remedy(
                "say what stands for it with `--allow-model NAME=PROVIDER/NAME`, or name one with `--model PROVIDER/NAME`",
            )
        })?
    };
    settings.lay_agent_flags(&AgentFlags {
        model: Some(model),
        ..AgentFlags::default()
    });
    Ok(find_model(&cx.host, settings, None)?)
}

struct Work<'a> {
    cx: &'a Cx,
    args: &'a BundleRunArgs,
    terminal: AgentTerminal<'a>,
    run: BundleRun<'a>,
}

impl Work<'_> {
    /// Opens a new session, or the one that is resumed.
    fn open(&self, input: String) -> Result<AgentSession, CommandError> {
        let log = open_log(self.cx, self.run.settings)?;
        let Some(id) = &self.args.session else {
            let model = self.run.model;
            let new = NewSession::create(
                log,
                NewSession::random_id(),
                SessionState::Running,
                input,
                model,
                PLACEMENT,
                Path::new("/"),
            )?;
            self.cx.talk.note(format_args!(
                "agent {} of the bundle {}, model {}, session {}",
                escape_text(&self.run.declared.agent),
                &self.run.declared.bundle[..12],
                escape_text(&model.model.label()),
                new.id
            ));
            return Ok(self.run.begin(&self.terminal, new)?);
        };
        let earlier = EarlierSession::open(&log, id)?;
        let is_same = earlier.declared().is_some_and(|declared| {
            let own = &self.run.declared;
            (&declared.bundle, &declared.agent) == (&own.bundle, &own.agent)
        });
        if !is_same {
            return Err(CommandError::usage(
                format!("the session {id} is not of this agent and this bundle"),
                "name the file that it began with, unchanged; without --session a new one begins",
            ));
        }
        self.run
            .model
            .model
            .skip(earlier.conversation.turns as usize);
        Ok(self
            .run
            .take_up(&self.terminal, log, earlier, Some(&input))?)
    }

    fn finish(&self, session: &AgentSession, outcome: &RunOutcome) -> CommandResult {
        session
            .log
            .set_state(&session.id, state_of(outcome.ending))?;
        tell(self.cx, outcome);
        let code = code_of(outcome);
        if self.args.json {
            let spent = &session.conversation.spent;
            let data = json!({
                "session": session.id,
                "bundle": self.run.declared.bundle,
                "agent": self.run.declared.agent,
                "ending": outcome.ending,
                "turns": session.conversation.turns,
                "usage": spent.usage(),
                "cost_usd": spent.cost_usd(),
                "fault": outcome.fault.as_ref().map(|fault| fault.code.as_str()),
            });
            render::print(render::envelope(code == 0, &outcome.message, &data))?;
        }
        Ok(code)
    }
}
