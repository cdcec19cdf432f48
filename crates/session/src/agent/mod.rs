//! Run of an agent: its model, the place where its tools work, MCP servers, instructions and
//! session.
//!
//! The loop, its events and its log are in `glovebox_agent`; [`crate::sync`] settles the changes.

mod changed_since;
mod context;
mod finish;
mod instructions;
mod model_config;
mod phase;
mod resume;
mod run;
mod servers;
mod workflow;
mod workplace;

pub use changed_since::find_changed_since;
pub use context::ContextFile;
pub use finish::FinishOptions;
pub use instructions::load_instructions;
pub use model_config::{DEMO_MODEL, ModelConfig, find_model};
pub use phase::ToolsetFilter;
use phase::phase_instruction;
pub use resume::{EarlierSession, has_own_sandbox};
pub use run::{
    AgentFrontend, AgentRun, AgentSession, AgentUser, NewSession, OnStop, StopWish, UNANSWERED,
};
pub use workflow::{PhaseDriver, PlannedPhase, WorkflowEnd, check_phase, run_phases};
pub use workplace::AgentWorkplace;
