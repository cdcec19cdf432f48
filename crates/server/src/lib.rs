//! Sessions of agents over HTTP: many users' tasks on one machine, each in a sandbox of its own.
//!
//! ```text
//! listen   connections: bounded, with deadlines        api    routes: who asks, what for, one JSON error
//!    \------------------------------------------------/  |
//! work     queue -> one thread per running session (`glovebox_session`), events to whoever reads them
//! store    tokens and owners; sessions themselves are in the log of `glovebox_agent`
//! ```
//!
//! `traces`, with the feature `otlp`, sends the spans of all of it to a collector.
//!
//! `bundle_page` stands beside all of it: a page for the author of one bundle, with connections of the same kind.
//!
//! The server is one more caller of `glovebox_session`, as the command line is: it has no tools, no workspaces and no
//! sessions of its own. What a session did is in its log, where its sandbox is in the registry; a server that was
//! killed finds both again.

mod api;
mod base_path;
mod bundle_page;
mod config;
mod listen;
mod log;
mod metrics;
mod origin;
mod peer;
mod preview_domain;
mod store;
mod tls;
#[cfg(feature = "otlp")]
mod traces;
mod work;

pub use api::openapi;
pub use base_path::BasePath;
pub use bundle_page::{BundlePage, ServedPage, serve_bundle_page};
pub use config::{BundleConfig, ResourceLimits, ResourceQuotas, ServerConfig, Token, UploadLimits};
pub use listen::{Serving, serve};
pub use metrics::DroppedSpans;
pub use origin::AllowedOrigin;
pub use peer::{TrustedProxies, TrustedProxy};
pub use preview_domain::PreviewDomain;
pub use store::{AuditFilter, Scope, Scopes, TokenInfo, TokenStore, export_audit_log};
pub use tls::Tls;
#[cfg(feature = "otlp")]
pub use traces::TraceExport;
