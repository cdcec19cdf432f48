//! The settings of one run: flags over configuration, with the placement fixed.

use crate::args::AgentArgs;
use crate::cmd::Cx;
use crate::exit::CommandError;
use crate::sync::question;
use glovebox_agent::Placement;
use glovebox_sandbox::WorkspaceMode;
use glovebox_session::work::{lay_local, lay_toolset, unknown_toolset};
use glovebox_settings::{Mode, Origin, Phase, Settings};
use std::path::PathBuf;

/// Phase of a workflow, and the file that defines it.
#[derive(Debug, Clone, Copy)]
pub(super) struct PhaseStep<'a> {
    pub phase: &'a Phase,
    pub origin: &'a Origin,
}

/// Refuses a run on the user's own files if no user can be asked and `--yes` is absent.
pub(super) fn refuse_unasked(args: &AgentArgs, placement: Placement) -> Result<(), CommandError> {
    if placement == Placement::Local && !args.yes && !args.dry_run && !question::is_possible() {
        return Err(CommandError::usage(
            "there is no terminal to ask on before each change",
            "let the agent work in a sandbox with --sandbox, or pass --yes",
        ));
    }
    Ok(())
}

/// Returns the project, and its settings before flags. They are read once for a whole run, so that
/// the configuration that was checked is the one that is used.
pub(super) fn load(cx: &Cx) -> Result<(PathBuf, Settings), CommandError> {
    let project = cx.project()?;
    let settings = cx.load_settings(Some(&project))?;
    Ok((project, settings))
}

/// Resolves the settings of a run and its placement: flags over configuration, a workflow's phase
/// as part of the configuration. Asks for the user's consent to the demands of the project's file.
pub(super) fn settle(
    cx: &Cx,
    args: &AgentArgs,
    step: Option<PhaseStep<'_>>,
    mut settings: Settings,
) -> Result<(Settings, Placement), CommandError> {
    if let Some(PhaseStep { phase, origin }) = step {
        settings.lay_workflow_phase(phase, origin, cx.host.home())?;
    }
    let is_sandbox = match (args.in_sandbox, args.sandbox.backend, args.local) {
        (Some(_), ..) => true,
        (None, Some(backend), _) => !backend.is_unwalled_here(),
        (None, None, true) => false,
        (None, None, false) => settings.agent.mode.value == Mode::Sandbox || args.keep.is_some(),
    };
    let mut flags = args.sandbox.clone();
    if args.in_sandbox.is_some() {
        flags.backend = args.in_sandbox;
    }
    if args.no_sync {
        flags.workspace = Some(WorkspaceMode::None);
    }
    settings.lay_flags(&flags.to_flags());
    settings.lay_agent_flags(&args.limits.to_flags(args.model.as_deref()));
    settings.lay_no_instructions(args.no_instructions);
    lay_phase(&mut settings, args.phase.as_deref())?;
    if is_sandbox {
        cx.choose_backend(&mut settings)?;
        if settings.backend.value.is_unwalled_here() {
            return Err(CommandError::usage(
                "the backend `host` is no sandbox",
                "use --sandbox for one, or --local to work on your own files",
            ));
        }
        let is_outside_native = settings.is_outside_native();
        cx.require_consent(&mut settings, is_outside_native)?;
        return Ok((settings, Placement::Sandbox));
    }
    lay_local(&mut settings);
    cx.require_consent(&mut settings, true)?;
    Ok((settings, Placement::Local))
}

/// Chooses the tools of a phase. A phase that changes nothing gets a read-only workspace.
pub(crate) fn lay_phase(settings: &mut Settings, phase: Option<&str>) -> Result<(), CommandError> {
    if let Some(phase) = phase {
        let chosen = settings.tools.choose(phase, &Origin::Flag("phase"));
        chosen.map_err(unknown_toolset)?;
    }
    Ok(lay_toolset(settings)?)
}
