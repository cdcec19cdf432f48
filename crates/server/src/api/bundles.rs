//! Bundles of users: upload, show, list, delete. Declarations are read from the syntax, without
//! running code of the bundle.

use super::auth::Shared;
use super::error::{ApiError, ApiResult, ErrorBody};
use super::principal::Principal;
use super::{SubmittedTask, blocking, body};
use crate::store::Scope;
use crate::work::{App, BundleRefusal, ReadyBundle};
use axum::extract::{Path, Query, Request, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use glovebox_bundle::{Agent, Extraction, Language, MAX_SOURCE_BYTES, Problem, Tool};
use glovebox_proto::{Code, Fault};
use glovebox_session::bundle::{BundleHash, ToolNote};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// Header with the signature of a bundle.
const SIGNATURE: &str = "glovebox-signature";

/// How an upload is read.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct UploadQuery {
    /// `javascript` or `typescript`; without it the `Content-Type` says it, and JavaScript is usual.
    language: Option<String>,
}

/// A bundle, as it was read.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BundleView {
    /// SHA-256 of its text, by which it is named.
    hash: String,
    /// Its size.
    bytes: u64,
    /// When it came, in milliseconds since 1970.
    created_unix_ms: u64,
    /// Whose signature it came with.
    signed_by: Option<String>,
    /// `lightfast-v1` or `ai-sdk`.
    format: Option<String>,
    /// Its agents, in the order of the source.
    agents: Vec<AgentView>,
    /// Exported tools that belong to no agent.
    tools: Vec<BundleToolView>,
    /// What is worth knowing about it.
    #[schema(value_type = Vec<Object>)]
    warnings: Vec<Problem>,
}

/// An agent of a bundle.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AgentView {
    /// Its key, by which it is asked for.
    key: String,
    /// The name it gives itself.
    name: String,
    /// What its model is told first.
    system: String,
    /// The model that it names.
    model: AgentModelView,
    /// Its tools.
    tools: Vec<BundleToolView>,
}

/// The model of an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AgentModelView {
    /// `gateway`, `openai`...; none when it is given as text.
    provider: Option<String>,
    /// Its name.
    name: String,
    /// The model of this server that is asked in its place.
    model: Option<String>,
    /// Why there is none.
    refusal: Option<String>,
}

/// A tool of a bundle.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BundleToolView {
    /// Its name.
    name: String,
    /// `function`, `client` or `provider`: who runs it.
    kind: String,
    /// What models are told about it.
    description: Option<String>,
    /// JSON Schema of its arguments.
    #[schema(value_type = Object)]
    input_schema: Value,
    /// JSON Schema of its result.
    #[schema(value_type = Option<Object>)]
    output_schema: Option<Value>,
    /// Whether it is offered: its code can be run here.
    is_offered: bool,
}

impl BundleView {
    fn new(app: &App, user: &str, bundle: &ReadyBundle) -> ApiResult<Self> {
        let (summary, extraction) = (&bundle.stored.summary, &bundle.stored.extraction);
        let declared = &extraction.bundle;
        let row = app.owners.bundle(user, &summary.hash)?;
        Ok(Self {
            hash: summary.hash.clone(),
            bytes: summary.bytes,
            // The time of the user's own upload: another user may have uploaded the same source
            // before.
            created_unix_ms: row.map_or(summary.created_unix_ms, |row| row.at_unix_ms),
            signed_by: app.signer_of(user, bundle.stored.hash),
            format: declared.format.as_ref().map(super::word),
            agents: declared
                .agents
                .iter()
                .map(|agent| AgentView::new(app, agent))
                .collect(),
            tools: declared.tools.iter().map(BundleToolView::new).collect(),
            warnings: extraction.warnings().cloned().collect(),
        })
    }
}

impl AgentView {
    fn new(app: &App, agent: &Agent) -> Self {
        let resolved = app.bundles.rules.resolve(&agent.key, &agent.model);
        let refusal = resolved
            .as_ref()
            .err()
            .map(|error| error.message().to_owned());
        Self {
            key: agent.key.clone(),
            name: agent.name.clone(),
            system: agent.system.clone(),
            model: AgentModelView {
                provider: agent.model.provider.clone(),
                name: agent.model.name.clone(),
                model: resolved.ok(),
                refusal,
            },
            tools: agent.tools.iter().map(BundleToolView::new).collect(),
        }
    }
}

impl BundleToolView {
    fn new(tool: &Tool) -> Self {
        Self {
            name: tool.name.clone(),
            kind: super::word(&tool.kind),
            description: tool.description.clone(),
            input_schema: serde_json::to_value(&tool.input_schema).unwrap_or_default(),
            output_schema: tool
                .output_schema
                .as_ref()
                .map(|schema| serde_json::to_value(schema).unwrap_or_default()),
            is_offered: tool.executable,
        }
    }
}

/// Upload a bundle: a JavaScript or TypeScript file that declares agents and tools.
#[utoipa::path(
    put, path = "/api/bundles", tag = "bundles", operation_id = "bundles_put",
    params(UploadQuery,
        ("Glovebox-Signature" = Option<String>, Header, description = "Base64 of the Ed25519 signature of the text, where the server asks for one")),
    request_body(content = String, content_type = "text/javascript", description = "The file as it is, at most 8 MiB"),
    responses(
        (status = 200, description = "What was read from it; the same text is the same bundle", body = BundleView),
        (status = 403, description = "It has no signature that is accepted here", body = ErrorBody),
        (status = 422, description = "It is wrong; `details.problems` has every error with its place and what to write instead", body = ErrorBody),
        (status = "4XX", description = "Refused", body = ErrorBody))
)]
pub(super) async fn put(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<UploadQuery>,
    request: Request,
) -> ApiResult<Response> {
    principal.require(Scope::Run)?;
    let language = language(query.language.as_deref(), &request)?;
    let signature = request.headers().get(SIGNATURE);
    let signature = signature.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let source = body::read(request, MAX_SOURCE_BYTES).await?;
    let digest = blake3::hash(&source);
    let _reader = shared.app.bundles.reader().await;
    let app = Arc::clone(&shared.app);
    let view = blocking(move || -> ApiResult<BundleView> {
        let put = app.put_bundle(&principal.name, &source, language, signature.as_deref());
        BundleView::new(&app, &principal.name, &*put.map_err(refusal)?)
    });
    let view = view.await??;
    let session = view.hash.clone();
    let mut response = Json(view).into_response();
    response
        .extensions_mut()
        .insert(SubmittedTask { session, digest });
    Ok(response)
}

fn language(asked: Option<&str>, request: &Request) -> ApiResult<Language> {
    let kind = request.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    match asked {
        Some("javascript") => Ok(Language::JavaScript),
        Some("typescript") => Ok(Language::TypeScript),
        Some(_) => Err(ApiError::invalid(
            "`language` is neither javascript nor typescript",
            "send one of them, or leave it out",
        )),
        None if kind.contains("typescript") => Ok(Language::TypeScript),
        None => Ok(Language::JavaScript),
    }
}

/// Converts a refusal to an error that lists every problem.
pub(super) fn refusal(refused: BundleRefusal) -> ApiError {
    match refused {
        BundleRefusal::Fault(fault) => fault.into(),
        BundleRefusal::Problems(extraction) => problems(&extraction),
        BundleRefusal::Tools(notes) => {
            let message = match notes.as_slice() {
                [(agent, note)] => placed(agent, note),
                several => format!(
                    "{} tools cannot be offered as they are declared",
                    several.len()
                ),
            };
            let tools: Vec<Value> = notes
                .iter()
                .map(|(agent, note)| json!({ "agent": agent, "tool": note.tool, "reason": note.reason }))
                .collect();
            let fault = Fault::failed(Code::InvalidArgument, message)
                .remedy("correct them and upload the bundle again");
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, fault)
                .with_details(json!({ "tools": tools }))
        }
    }
}

fn placed(agent: &str, note: &ToolNote) -> String {
    if agent.is_empty() {
        return note.to_string();
    }
    format!("agent `{agent}`, {note}")
}

fn problems(extraction: &Extraction) -> ApiError {
    let errors = extraction.errors().count();
    let first = extraction.errors().next();
    let message = match (first, errors) {
        (Some(one), 1) => format!(
            "{} {} (line {}, column {}): {}",
            one.code, one.path, one.line, one.column, one.reason
        ),
        (_, count) => format!("the bundle has {count} errors"),
    };
    let remedy = "`details.problems` says of each where it is and what to write instead; `glovebox bundle check FILE` \
                  shows them in the source";
    let fault = Fault::failed(Code::InvalidArgument, message).remedy(remedy);
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, fault)
        .with_details(json!({ "problems": extraction.problems }))
}

/// A bundle that is listed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ListedBundle {
    /// SHA-256 of its text.
    hash: String,
    /// When you uploaded it, in milliseconds since 1970.
    created_unix_ms: u64,
}

/// Your bundles.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BundleList {
    /// The newest first.
    bundles: Vec<ListedBundle>,
}

/// Your bundles.
#[utoipa::path(
    get, path = "/api/bundles", tag = "bundles", operation_id = "bundles_list",
    responses((status = 200, description = "The newest first", body = BundleList),
        (status = "4XX", description = "Refused", body = ErrorBody))
)]
pub(super) async fn list(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> ApiResult<Json<BundleList>> {
    principal.require(Scope::Read)?;
    let app = Arc::clone(&shared.app);
    let found = blocking(move || app.owners.bundles(&principal.name)).await??;
    let bundles = found
        .into_iter()
        .map(|(hash, created_unix_ms)| ListedBundle {
            hash,
            created_unix_ms,
        });
    Ok(Json(BundleList {
        bundles: bundles.collect(),
    }))
}

/// A bundle with all that was read from it.
#[utoipa::path(
    get, path = "/api/bundles/{id}", tag = "bundles", operation_id = "bundles_show", params(("id" = String, Path, description = "SHA-256 of its text")),
    responses((status = 200, description = "What was read from it", body = BundleView),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn show(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> ApiResult<Json<BundleView>> {
    principal.require(Scope::Read)?;
    let hash: BundleHash = id.parse()?;
    let app = Arc::clone(&shared.app);
    let view = blocking(move || -> ApiResult<BundleView> {
        let user = &principal.name;
        BundleView::new(&app, user, &*app.bundle(user, hash)?)
    });
    Ok(Json(view.await??))
}

/// Forget a bundle. Sessions of its agents stay, and cannot go on.
#[utoipa::path(
    delete, path = "/api/bundles/{id}", tag = "bundles", operation_id = "bundles_delete", params(("id" = String, Path, description = "SHA-256 of its text")),
    responses((status = 204, description = "It is gone"),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn delete(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    principal.require(Scope::Run)?;
    let hash: BundleHash = id.parse()?;
    let app = Arc::clone(&shared.app);
    let is_gone = blocking(move || app.delete_bundle(&principal.name, hash)).await??;
    if is_gone {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(ApiError::not_found("bundle", &id))
}
