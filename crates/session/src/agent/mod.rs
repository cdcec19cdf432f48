//! The run of an agent: its model, the place for its tools, MCP servers, what the model is told, and its session.
//!
//! The loop itself, its events and its log are in `glovebox_agent`; what becomes of the changes is in [`crate::sync`].

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
