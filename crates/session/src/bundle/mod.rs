//! Agents of a bundle: stored by digest, run with a model that the operator allows and with the
//! bundle's own tools.
//!
//! ```text
//! store      bundles by SHA-256, with their extractions
//! executed   bundles that are run to read their declaration, if the operator asks for it
//! signature  keys whose bundles are accepted
//! models     the model to use for the one that a bundle names
//! schema     arguments and results, checked against the schemas of a tool
//! defaults   defaults of a schema, inserted into arguments
//! node       location of Node, for tools that need it
//! tools      the tools of one agent as the loop calls them: no others
//! run        one agent's session
//! ```
//!
//! A bundle is untrusted text. Its configuration was read without running it (`glovebox_bundle`).
//! The parts that reach a model are bounded here, and its code runs only where
//! [`tools`](BundleTools) sends it.

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
