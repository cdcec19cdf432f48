//! Handles one client: requests of the protocol in, calls of the tools out.

use super::ask::{Asker, put};
use super::pool::{SessionLease, SessionPool};
use super::{Session, resource};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use glovebox_proto::{Code, Fault};
use glovebox_tools::{Definition, ToolOutcome};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest,
    CustomResult, ErrorCode, Implementation, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, MetaObject, PaginatedRequestParams, ProgressNotificationParam,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Calls of one client at work at the same time; more wait.
const MAX_CALLS: usize = 32;
/// How often a client that wants to know hears that its call goes on.
const PROGRESS: Duration = Duration::from_secs(1);
/// Where a result has its facts, in `_meta`.
const FACTS: &str = "glovebox/facts";
/// Where a result has the name of the sandbox, in `_meta`.
const SANDBOX: &str = "glovebox/sandbox";

/// The connection a request came over; cancelled when it ends. Among the extensions of a request.
#[derive(Debug, Clone)]
pub(super) struct ClientPresence(pub(super) CancellationToken);

/// Handles the requests of one client.
#[derive(Debug)]
pub(super) struct McpHandler {
    pool: Arc<SessionPool>,
    lease: SessionLease,
    calls: Semaphore,
    /// Whether the client was told what there is to know about its session.
    has_notice: AtomicBool,
    /// Cancelled when the client is gone for good.
    gone: CancellationToken,
}

impl McpHandler {
    pub(super) fn new(pool: Arc<SessionPool>, gone: CancellationToken) -> Self {
        Self {
            lease: SessionLease::new(Arc::clone(&pool)),
            pool,
            calls: Semaphore::new(MAX_CALLS),
            has_notice: AtomicBool::new(false),
            gone,
        }
    }

    async fn call(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        session: &Arc<dyn Session>,
    ) -> Result<ToolOutcome, Fault> {
        let _turn = self
            .calls
            .acquire()
            .await
            .map_err(|error| Fault::failed(Code::Internal, error.to_string()))?;
        // However this future ends, the call ends too.
        let cancel = Cancel(Arc::new(AtomicBool::new(false)));
        let flag = Arc::clone(&cancel.0);
        let name = request.name.into_owned();
        let arguments = request.arguments.map_or(Value::Null, Value::Object);
        let (asker, mut questions) = Asker::new(&context.peer);
        let mut call = tokio::task::spawn_blocking({
            let session = Arc::clone(session);
            let name = name.clone();
            move || {
                let record = session.call_began(&name, &arguments);
                let called = session.tools().call_asking(&name, arguments, &asker, &flag);
                record.end(called.as_ref());
                called
            }
        });
        let presence = context
            .extensions
            .get::<http::request::Parts>()
            .and_then(|parts| parts.extensions.get::<ClientPresence>())
            .map_or_else(CancellationToken::new, |presence| presence.0.clone());
        let token = context.meta.get_progress_token();
        let begin = Instant::now();
        let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + PROGRESS, PROGRESS);
        let mut asking = None;
        let mut is_given_up = false;
        loop {
            tokio::select! {
                // Also where it was told to end: what it started is gone when it has.
                done = &mut call => {
                    if let Some(asking) = asking {
                        // Nobody waits for the answer: the client is told.
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
                () = context.ct.cancelled(), if !is_given_up => is_given_up = true,
                () = presence.cancelled(), if !is_given_up => is_given_up = true,
                () = self.gone.cancelled(), if !is_given_up => is_given_up = true,
                _ = tick.tick(), if token.is_some() && !is_given_up => {
                    if let Some(token) = token.clone() {
                        let seconds = begin.elapsed().as_secs_f64();
                        let note = ProgressNotificationParam::new(token, seconds)
                            .with_message(format!("{name} has worked for {seconds:.0} s"));
                        // A client that does not listen does not matter.
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
        work: impl FnOnce(&dyn Session) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, ErrorData> {
        let session = self
            .lease
            .session()
            .await
            .map_err(|fault| error_data(&fault))?;
        tokio::task::spawn_blocking(move || work(&*session))
            .await
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?
            .map_err(|fault| error_data(&fault))
    }
}

/// Ends with the question that is put, if there is one.
async fn until_answered(asking: &mut Option<impl Future<Output = ()> + Unpin>) {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

/// Gives a call up when it is dropped.
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
        // The versions after this one know no sessions.
        Cow::Borrowed(ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let toolset = self.pool.factory().toolset();
        let tools = toolset
            .tools()
            .map(|definition| tool(definition, definition.described(|name| toolset.has(name))))
            .collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // What a tool or a rule says no to is for the model to read, so it is a result and no error of
        // the protocol.
        let session = match self.lease.session().await {
            Ok(session) => session,
            Err(fault) => return Ok(refusal(&fault).into()),
        };
        let called = self.call(request, &context, &session).await;
        let mut result = called.map_or_else(|fault| refusal(&fault), answer);
        let meta = result.meta.get_or_insert_default();
        meta.0.insert(SANDBOX.to_owned(), session.name().into());
        if !self.has_notice.swap(true, Ordering::Relaxed)
            && let Some(notice) = session.notice()
        {
            result.content.push(ContentBlock::text(notice));
        }
        Ok(result.into())
    }

    /// Refuses a method that neither the SDK nor this server knows. Known ones that do not fit do not get here.
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
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let found = self
            .with_session(|session| resource::list(session.tools()))
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
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let read = self
            .with_session(move |session| resource::read(session, &uri))
            .await?;
        Ok(read.into())
    }
}

fn tool(definition: &Definition, description: String) -> Tool {
    let schema = match definition.schema() {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    let hints = ToolAnnotations::with_title(definition.name)
        .read_only(definition.is_read_only)
        .destructive(definition.is_destructive)
        .idempotent(definition.is_idempotent)
        // Everything stays in the sandbox; what a program reaches is the sandbox's to say.
        .open_world(definition.runs_programs);
    Tool::new(definition.name, description, Arc::new(schema)).with_annotations(hints)
}

fn answer(outcome: ToolOutcome) -> CallToolResult {
    let mut content = vec![ContentBlock::text(outcome.text)];
    content.extend(
        outcome
            .images
            .iter()
            .map(|image| ContentBlock::image(STANDARD.encode(&image.bytes), image.mime)),
    );
    let mut result = if outcome.is_error {
        CallToolResult::error(content)
    } else {
        CallToolResult::success(content)
    };
    result.meta = Some(with_facts(Value::Object(outcome.facts)));
    result
}

fn refusal(fault: &Fault) -> CallToolResult {
    let mut text = fault.message.clone();
    if let Some(remedy) = &fault.remedy {
        text = format!("{text}\n{remedy}");
    }
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.meta = Some(with_facts(facts(fault)));
    result
}

/// Facts for the program of the client. They are no structured content: hosts hand a model only that
/// when there is some, and the text, which is meant for the model, is then lost.
fn with_facts(facts: Value) -> MetaObject {
    MetaObject(Map::from_iter([(FACTS.to_owned(), facts)]))
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
