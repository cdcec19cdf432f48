//! Accounting of tool calls: metrics, trace spans, and one entry per call in the audit log.

use super::network::NetworkWatch;
use crate::log;
use crate::metrics::{DroppedSpans, Metrics};
use crate::store::{AuditEntry, AuditLog, Decision, ToolEntry};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Registry;
use glovebox_session::host::now_unix_ms;
use glovebox_tools::ToolOutcome;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Instant;
use tracing::{Span, error, error_span, field};

/// Destinations of the accounting of the server: metrics, audit log and network counters.
#[derive(Debug)]
pub(crate) struct Accounting {
    pub metrics: Arc<Metrics>,
    audit: AuditLog,
    pub network: NetworkWatch,
}

/// User, session and sandbox of a tool call.
#[derive(Debug, Clone)]
pub(crate) struct CallPlace {
    pub user: String,
    pub session: Option<String>,
    pub sandbox: Option<String>,
    /// `sandbox`, `local` or `bundle`.
    pub placement: &'static str,
}

/// A tool call that has begun and has not ended.
#[derive(Debug)]
pub(crate) struct OpenCall {
    id: String,
    tool: String,
    digest: blake3::Hash,
    begun: Instant,
    /// Span of the call in traces; dropping it ends the span.
    span: Span,
}

/// Result of a tool call, as the accounting needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallEnd<'a> {
    is_error: bool,
    /// Code of the fault that ended the call. None if no fault did.
    fault: Option<Code>,
    facts: Option<&'a Map<String, Value>>,
    /// Text that the caller received.
    text: &'a str,
}

impl<'a> CallEnd<'a> {
    /// Describes the result of a call made through a tool session.
    pub(crate) fn of(called: Result<&'a ToolOutcome, &'a Fault>) -> Self {
        match called {
            Ok(outcome) => Self::told(outcome.is_error, &outcome.facts, &outcome.text),
            Err(fault) => Self {
                is_error: true,
                fault: Some(fault.code),
                facts: None,
                text: &fault.message,
            },
        }
    }

    /// Describes the result of a call by the event in the session's log.
    pub(crate) fn told(is_error: bool, facts: &'a Map<String, Value>, text: &'a str) -> Self {
        Self {
            is_error,
            fault: log::fault_code(facts),
            facts: Some(facts),
            text,
        }
    }

    /// Describes a call of which only its success and its text are known.
    pub(crate) const fn plain(is_success: bool, text: &'a str) -> Self {
        Self {
            is_error: !is_success,
            fault: None,
            facts: None,
            text,
        }
    }

    fn outcome(&self) -> &'static str {
        match self.fault {
            Some(code) => code.as_str(),
            None if self.is_error => "error",
            None => "ok",
        }
    }

    const fn decision(&self) -> Decision {
        match self.fault {
            Some(Code::PolicyRefused | Code::PermissionDenied) => Decision::Refused,
            _ => Decision::Allowed,
        }
    }

    fn fact(&self, name: &str) -> Option<&'a Value> {
        self.facts?.get(name)
    }
}

impl Accounting {
    /// Creates the accounting. `dropped_spans` counts the spans that did not reach the collector;
    /// None if there is no collector.
    pub(crate) fn new(
        audit: AuditLog,
        registry: Arc<Registry>,
        dropped_spans: Option<&DroppedSpans>,
    ) -> Self {
        Self {
            metrics: Arc::new(Metrics::new().with_dropped_spans(dropped_spans)),
            audit,
            network: NetworkWatch::new(registry),
        }
    }

    /// Appends an entry to the audit log. The action has already happened, so a failure to write is
    /// counted and logged, and not returned.
    pub(crate) fn write_down(&self, entry: &AuditEntry<'_>) {
        if let Err(fault) = self.audit.write(entry, now_unix_ms()) {
            self.metrics.failed(fault.code.as_str(), "");
            error!(problem = fault.message, "the audit log cannot be written");
        }
    }

    /// Begins the accounting of a call of `tool`. `id` is the caller's id of the call; `parent` is
    /// the span of the session or request that makes it.
    pub(crate) fn begin_call(
        &self,
        parent: &Span,
        place: &CallPlace,
        id: String,
        tool: &str,
        arguments: &Value,
    ) -> OpenCall {
        self.watch_call(place, &id, tool, arguments);
        OpenCall {
            span: call_span(parent, place, &id, tool),
            id,
            tool: tool.to_owned(),
            // A value has a JSON form.
            digest: blake3::hash(&serde_json::to_vec(arguments).unwrap_or_default()),
            begun: Instant::now(),
        }
    }

    /// Ends the accounting of a call: metrics, log, span and audit entry.
    pub(crate) fn end_call(&self, place: &CallPlace, call: &OpenCall, end: CallEnd<'_>) {
        self.unwatch_call(place, &call.id, &call.tool, end.facts);
        self.metrics
            .tool_executed(place.placement, &call.tool, !end.is_error);
        if let Some(code) = end.fault {
            self.metrics.failed(code.as_str(), &call.tool);
        }
        let took_ms = log::millis(call.begun.elapsed());
        log::call_ended(Some(&call.id), &call.tool, end.is_error, took_ms, end.fault);
        call.span.record("glovebox.outcome", end.outcome());
        if end.is_error {
            log::mark_failed(&call.span, end.outcome());
        }
        self.write_down(&AuditEntry::Tool(ToolEntry {
            user: &place.user,
            session: place.session.as_deref(),
            sandbox: place.sandbox.as_deref(),
            call: &call.id,
            tool: &call.tool,
            placement: place.placement,
            decision: end.decision(),
            outcome: end.outcome(),
            took_ms,
            job: end.fact("job").and_then(Value::as_u64),
            why: end.fact("call").and_then(Value::as_str),
            digest: call.digest.to_hex().to_string(),
            output_digest: blake3::hash(end.text.as_bytes()).to_hex().to_string(),
        }));
    }
}

/// Creates the span of a call. Like the log, it holds neither the arguments nor the result.
fn call_span(parent: &Span, place: &CallPlace, id: &str, tool: &str) -> Span {
    let (tool, call_id) = (log::tool_word(tool), Some(id).filter(|id| log::is_id(id)));
    error_span!(
        parent: parent,
        "call",
        call_id,
        session_id = place.session,
        sandbox = place.sandbox,
        user = place.user,
        otel.name = format!("execute_tool {tool}"),
        otel.status_code = field::Empty,
        "error.type" = field::Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = tool,
        gen_ai.tool.call.id = call_id,
        glovebox.placement = place.placement,
        glovebox.outcome = field::Empty,
    )
}
