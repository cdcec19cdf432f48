//! Agents of a bundle: kept by digest, run with a model that the operator allows and with the bundle's own tools.
//!
//! ```text
//! store      bundles by SHA-256, with what was read from them
//! executed   bundles that are run to be asked, where somebody says so
//! signature  whose bundles are accepted
//! models     which model stands for the one that a bundle names
//! schema     arguments and results, checked against the schemas of a tool
//! defaults   what a schema puts into arguments that leave it out
//! node       where Node is, for tools that need it
//! tools      the tools of one agent as the loop calls them: nothing else than these
//! run        one agent's session
//! ```
//!
//! A bundle is text of a stranger. Its configuration was read without running it (`glovebox_bundle`); what of it reaches
//! a model is bounded here, and its code runs where [`tools`](BundleTools) sends it and nowhere else.

mod defaults;
mod executed;
mod models;
mod node;
mod run;
mod schema;
mod signature;
mod store;
mod tools;

pub use executed::ExecutedReader;
pub use models::{AllowedModel, ModelRules};
pub use node::node_view;
pub use run::{BundleRun, PLACEMENT, declared_engine, engine_of, find_agent};
pub use schema::{Mismatch, Schema};
pub use signature::{BundleKey, BundleKeys, CheckedSignature};
pub use store::{
    BundleHash, BundleStore, BundleSummary, PutError, ReadBundle, StoreLimits, StoredBundle,
};
pub use tools::{BundleTools, CallContext, RunTools, ToolFailure, ToolNote};
