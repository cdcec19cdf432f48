//! What an agent has for its work: a model, a place for its tools, MCP servers, and what the model is told.
//!
//! The loop itself, its events and its log are in `glovebox_agent`.

mod context;
mod instructions;
mod model_config;
mod phase;
mod servers;
mod workplace;

pub use context::ContextFile;
pub use instructions::load_instructions;
pub use model_config::{ModelConfig, find_model};
pub use phase::{ToolsetFilter, phase_instruction};
pub use workplace::AgentWorkplace;
