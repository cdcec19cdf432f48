//! Handler for one client: requests of the protocol in, calls of tools out.

use super::ask::{Asker, put};
use super::calls::CallPlaces;
use super::cancel::Cancellations;
use super::pool::{SessionLease, SessionPool};
use super::{Session, resource};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use glovebox_proto::visible::line_of_text;
use glovebox_proto::{Code, Fault, JobId};
use glovebox_tools::{CallClient, Definition, ToolOutcome, ToolPrefix};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelledNotificationParam,
    ContentBlock, CustomRequest, CustomResult, ErrorCode, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, MetaObject,
    PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Interval of progress notifications, if the client requested them.
const PROGRESS: Duration = Duration::from_secs(1);
/// Key in `_meta` with which a call requests facts, and under which its result has them.
const FACTS: &str = "glovebox/facts";
/// Key in `_meta` under which a result has the name of the sandbox.
const SANDBOX: &str = "glovebox/sandbox";

/// Tools that hosts load into the model's context at the start, not only after a search for tools.
const ALWAYS_LOADED: [&str; 7] = ["Bash", "Job", "Read", "Write", "Edit", "Glob", "Grep"];
/// Key in `_meta` of the definitions of these tools.
const ALWAYS_LOAD: &str = "anthropic/alwaysLoad";

/// Token that is cancelled when the connection of a request ends. An extension of the HTTP request.
#[derive(Debug, Clone)]
pub(super) struct ClientPresence(pub(super) CancellationToken);

/// Returns the presence of the request's client. The token is never cancelled for transports
/// without one.
fn presence(context: &RequestContext<RoleServer>) -> CancellationToken {
    let parts = context.extensions.get::<http::request::Parts>();
    parts
        .and_then(|parts| parts.extensions.get::<ClientPresence>())
        .map_or_else(CancellationToken::new, |presence| presence.0.clone())
}

/// Handler of the requests of one client.
#[derive(Debug)]
pub(super) struct McpHandler {
    pool: Arc<SessionPool>,
    lease: SessionLease,
    calls: CallPlaces,
    /// True if the client has received the notice about its session.
    has_notice: AtomicBool,
    /// Cancelled when the client is gone for good.
    gone: CancellationToken,
    cancellations: Cancellations,
}

impl McpHandler {
    pub(super) fn new(pool: Arc<SessionPool>, gone: CancellationToken) -> Self {
        Self {
            lease: SessionLease::new(Arc::clone(&pool)),
            pool,
            calls: CallPlaces::new(),
            has_notice: AtomicBool::new(false),
            gone,
            cancellations: Cancellations::default(),
        }
    }

    async fn call(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        session: &Arc<dyn Session>,
    ) -> Result<ToolOutcome, Fault> {
        let presence = presence(context);
        let gone = async {
            tokio::select! {
                () = context.ct.cancelled() => {}
                () = presence.cancelled() => {}
                () = self.gone.cancelled() => {}
            }
        };
        // Before the thread is taken: waiting calls must not use up the threads of all clients.
        let _place = self.calls.take(gone).await?;
        // Dropping this future cancels the call.
        let cancel = Cancel(Arc::new(AtomicBool::new(false)));
        let flag = Arc::clone(&cancel.0);
        let ends_command = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&ends_command);
        let name = request.name.into_owned();
        let arguments = request.arguments.map_or(Value::Null, Value::Object);
        let (asker, mut questions) = Asker::new(&context.peer);
        let mut call = tokio::task::spawn_blocking({
            let session = Arc::clone(session);
            let name = name.clone();
            move || {
                let record = session.call_began(&name, &arguments);
                let client = CallClient {
                    asker: &asker,
                    ends_command: &ends,
                };
                let called = session.tools().call_from(client, &name, arguments, &flag);
                record.end(called.as_ref());
                called
            }
        });
        let token = context.meta.get_progress_token();
        let begin = Instant::now();
        let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + PROGRESS, PROGRESS);
        let mut asking = None;
        let mut is_given_up = false;
        loop {
            tokio::select! {
                // Waits for the end also after a cancellation: only then is the call's command
                // gone.
                done = &mut call => {
                    if let Some(asking) = asking {
                        // Completes the withdrawal of the question, so that the client stops
                        // showing it.
                        asking.await;
                    }
                    return done.unwrap_or_else(|error| {
                        Err(Fault::failed(Code::Internal, format!("the call broke down: {error}")))
                    });
                }
                Some(query) = questions.recv(), if asking.is_none() => {
                    asking = Some(Box::pin(put(&context.peer, query)));
                }
                () = until_answered(&mut asking), if asking.is_some() => asking = None,
                () = context.ct.cancelled(), if !is_given_up => {
                    let is_users = self.cancellations.is_users(&context.id).await;
                    ends_command.store(is_users, Ordering::Relaxed);
                    is_given_up = true;
                }
                () = presence.cancelled(), if !is_given_up => is_given_up = true,
                () = self.gone.cancelled(), if !is_given_up => is_given_up = true,
                _ = tick.tick(), if token.is_some() && !is_given_up => {
                    if let Some(token) = token.clone() {
                        let seconds = begin.elapsed().as_secs_f64();
                        let note = ProgressNotificationParam::new(token, seconds)
                            .with_message(format!("{name} has worked for {seconds:.0} s"));
                        // An error means that the client is gone, which does not matter here.
                        let _ = context.peer.notify_progress(note).await;
                    }
                }
            }
            if is_given_up {
                cancel.now();
            }
        }
    }

    async fn with_session<T: Send + 'static>(
        &self,
        context: &RequestContext<RoleServer>,
        work: impl FnOnce(&dyn Session) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, ErrorData> {
        let session = self
            .lease
            .session(client_name(context))
            .await
            .map_err(|fault| error_data(&fault))?;
        tokio::task::spawn_blocking(move || work(&*session))
            .await
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?
            .map_err(|fault| error_data(&fault))
    }
}

/// Completes when the current question does. Never completes if there is none.
async fn until_answered(asking: &mut Option<impl Future<Output = ()> + Unpin>) {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

/// Flag that cancels a call when it is dropped.
struct Cancel(Arc<AtomicBool>);

impl Cancel {
    fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for Cancel {
    fn drop(&mut self) {
        self.now();
    }
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(
                Implementation::new("glovebox", env!("CARGO_PKG_VERSION")).with_title("Glovebox"),
            )
            .with_instructions(self.pool.factory().instructions())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        // Later protocol versions have no sessions.
        Cow::Borrowed(ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let toolset = self.pool.factory().toolset();
        let prefix = self.pool.factory().prefix();
        let tools = toolset
            .tools()
            .map(|definition| tool(definition, |name| toolset.has(name), &prefix))
            .collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let prefix = self.pool.factory().prefix();
        let Some(own) = prefix.own_name(&request.name).map(str::to_owned) else {
            let text = format!(
                "there is no tool `{}`; the names of tools begin with `{}`",
                line_of_text(&request.name),
                prefix.name("")
            );
            return Err(ErrorData::invalid_params(text, None));
        };
        request.name = own.into();
        let wants_facts = context.meta.0.0.get(FACTS) == Some(&Value::Bool(true));
        let session = match self.lease.session(client_name(&context)).await {
            Ok(session) => session,
            Err(fault) => {
                let mut result = refuse(&fault, None);
                if wants_facts {
                    result.meta = Some(MetaObject(Map::from_iter([(
                        FACTS.to_owned(),
                        facts(&fault),
                    )])));
                }
                return Ok(result.into());
            }
        };
        let called = self.call(request, &context, &session).await;
        if let Ok(outcome) = &called
            && outcome.facts.get("running") == Some(&Value::Bool(true))
            && let Some(job) = outcome.facts.get("job").and_then(Value::as_u64)
            && let Ok(job) = u32::try_from(job)
        {
            let session = Arc::clone(&session);
            self.cancellations
                .note_running(context.id.clone(), JobId(job), session);
        }
        let notice = (!self.has_notice.swap(true, Ordering::Relaxed))
            .then(|| session.notice())
            .flatten();
        let (mut result, facts) = match called {
            Ok(outcome) => answer(outcome, notice.as_deref()),
            Err(fault) => (refuse(&fault, notice.as_deref()), facts(&fault)),
        };
        // Only on request: some hosts show `_meta` to their model beside a shorter text.
        if wants_facts {
            let meta = [(FACTS, facts), (SANDBOX, session.name().into())];
            let meta = meta.map(|(name, value)| (name.to_owned(), value));
            result.meta = Some(MetaObject(meta.into_iter().collect()));
        }
        Ok(result.into())
    }

    async fn on_cancelled(
        &self,
        cancelled: CancelledNotificationParam,
        _: NotificationContext<RoleServer>,
    ) {
        if let Some(request) = cancelled.request_id {
            self.cancellations
                .note(request, cancelled.reason.as_deref());
        }
    }

    /// Refuses an unknown method. Known methods with malformed parameters do not get here.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            request.method,
            None,
        ))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let found = self
            .with_session(&context, |session| resource::list(session.tools()))
            .await?;
        Ok(ListResourcesResult::with_all_items(found))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(
            resource::templates(),
        ))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let read = self
            .with_session(&context, move |session| resource::read(session, &uri))
            .await?;
        Ok(read.into())
    }
}

/// Returns the name that the client sent in `initialize`.
fn client_name(context: &RequestContext<RoleServer>) -> Option<String> {
    let info = context.peer.peer_info()?;
    Some(info.client_info.name.clone())
}

fn tool(definition: &Definition, has: impl Fn(&str) -> bool, prefix: &ToolPrefix) -> Tool {
    let schema = match definition.schema() {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    let hints = ToolAnnotations::with_title(definition.name)
        .read_only(definition.is_read_only)
        .destructive(definition.is_destructive)
        .idempotent(definition.is_idempotent)
        // Files stay in the sandbox. Programs reach what the sandbox's network permits.
        .open_world(definition.runs_programs);
    let (name, description) = (
        prefix.name(definition.name),
        definition.described_as(has, prefix),
    );
    let mut tool = Tool::new(name, description, Arc::new(schema)).with_annotations(hints);
    if ALWAYS_LOADED.contains(&definition.name) {
        let mark = Map::from_iter([(ALWAYS_LOAD.to_owned(), true.into())]);
        tool.meta = Some(MetaObject(mark));
    }
    tool
}

/// Converts the outcome of a call to a result, and returns its facts. A command that failed is an
/// ordinary result with its exit code: after a tool error, hosts end the run or hide the text.
fn answer(outcome: ToolOutcome, notice: Option<&str>) -> (CallToolResult, Value) {
    let images = outcome.images.iter();
    let mut content: Vec<_> = images
        .map(|image| ContentBlock::image(STANDARD.encode(&image.bytes), image.mime))
        .collect();
    content.push(text(outcome.text, notice));
    let result = CallToolResult::success(content);
    // Not as structured content: hosts that get structured content show only that to their model.
    (result, Value::Object(outcome.facts))
}

/// Converts the fault of a call to a result. A refusal is for the model to read, so it is not an
/// error of the protocol.
fn refuse(fault: &Fault, notice: Option<&str>) -> CallToolResult {
    let mut words = fault.message.clone();
    if let Some(remedy) = &fault.remedy {
        words = format!("{words}\n{remedy}");
    }
    CallToolResult::error(vec![text(words, notice)])
}

/// Joins text and notice in one block: some hosts show only one.
fn text(mut text: String, notice: Option<&str>) -> ContentBlock {
    if let Some(notice) = notice {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(notice);
    }
    ContentBlock::text(text)
}

fn facts(fault: &Fault) -> Value {
    json!({
        "class": fault.class.to_string(),
        "code": fault.code.as_str(),
        "message": fault.message,
        "remedy": fault.remedy.as_ref().map(ToString::to_string),
        "retryable": fault.is_retryable,
    })
}

fn error_data(fault: &Fault) -> ErrorData {
    let data = Some(facts(fault));
    match fault.code {
        Code::NotFound | Code::JobNotFound => {
            ErrorData::resource_not_found(fault.message.clone(), data)
        }
        Code::InvalidArgument => ErrorData::invalid_params(fault.message.clone(), data),
        _ => ErrorData::internal_error(fault.message.clone(), data),
    }
}
