//! Metrics in the OpenMetrics text format at `/metrics`. Labels have small, closed sets of values.

use glovebox_egress::{TrafficNews, WITHHELD_SECRET};
use glovebox_proto::EgressReason;
use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

/// Upper bounds of the histogram of operations, in seconds: tools may run for minutes.
const BUCKETS: [f64; 14] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 120.0, 300.0, 600.0,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabels {
    placement: &'static str,
    tool: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
    backend: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    code: &'static str,
    tool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ComponentLabels {
    component: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PlaceLabels {
    backend: &'static str,
    place: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    verdict: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StartLabels {
    start: &'static str,
}

/// Number of trace spans that did not reach the collector since the server started.
#[derive(Debug, Clone, Default)]
pub struct DroppedSpans(Counter);

impl DroppedSpans {
    /// Adds a number of lost spans.
    pub fn add(&self, spans: u64) {
        self.0.inc_by(spans);
    }

    /// Returns the number of lost spans.
    pub fn count(&self) -> u64 {
        self.0.get()
    }
}

/// All metrics of the server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    tools: Family<ToolLabels, Counter>,
    operations: Family<OperationLabels, Histogram>,
    errors: Family<ErrorLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    sessions: Family<StateLabels, Gauge>,
    readers: Gauge,
    components: Family<ComponentLabels, Gauge>,
    backend_up: Family<PlaceLabels, Gauge>,
    egress: Family<DirectionLabels, Counter>,
    warm_sandboxes: Gauge,
    warm_lost: Gauge,
    session_starts: Family<StartLabels, Counter>,
    egress_connections: Family<VerdictLabels, Counter>,
    egress_open: Gauge,
    preview_logins: Family<OutcomeLabels, Counter>,
    preview_requests: Family<OutcomeLabels, Counter>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let tools = Family::default();
        let operations =
            Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        let errors = Family::default();
        let requests = Family::default();
        let sessions = Family::default();
        let readers = Gauge::default();
        let components = Family::default();
        let backend_up = Family::default();
        let egress = Family::default();
        let warm_sandboxes = Gauge::default();
        let warm_lost = Gauge::default();
        let session_starts = Family::default();
        let egress_connections = Family::default();
        let egress_open = Gauge::default();
        let preview_logins = Family::default();
        let preview_requests = Family::default();
        begin_at_zero(&egress, &egress_connections, &session_starts);
        let mut registry = Registry::with_prefix("glovebox");
        registry.register(
            "tool_executions",
            "Tool calls that have ended",
            tools.clone(),
        );
        registry.register(
            "sandbox_operation_duration_seconds",
            "How long operations on sandboxes took",
            operations.clone(),
        );
        registry.register(
            "sandbox_errors",
            "Operations on sandboxes that failed",
            errors.clone(),
        );
        registry.register(
            "http_requests",
            "Requests that were answered",
            requests.clone(),
        );
        registry.register("sessions", "Sessions, by what they do", sessions.clone());
        registry.register("event_readers", "Open streams of events", readers.clone());
        registry.register(
            "component_ready",
            "Whether a component worked when it was last checked: 1, or 0",
            components.clone(),
        );
        registry.register(
            "backend_up",
            "Whether an address of the service on which sandboxes are answered when it was last asked: 1, or 0 after three failures",
            backend_up.clone(),
        );
        registry.register(
            "egress_bytes",
            "Bytes between sandboxes and listed hosts",
            egress.clone(),
        );
        registry.register(
            "egress_connections",
            "What sandboxes asked for of hosts, look-ups that came to nothing included: allowed, failed (allowed, and the host could not be reached) or refused, and why",
            egress_connections.clone(),
        );
        registry.register(
            "egress_connections_open",
            "Connections between sandboxes and listed hosts that are open",
            egress_open.clone(),
        );
        registry.register(
            "warm_sandboxes",
            "Sandboxes that were started ahead and wait for a session",
            warm_sandboxes.clone(),
        );
        registry.register(
            "warm_sandboxes_lost",
            "Those that ended while they waited, since the server began",
            warm_lost.clone(),
        );
        registry.register(
            "session_starts",
            "New sessions of a server with a pool: warm, in a sandbox that waited, or cold, in one that was started",
            session_starts.clone(),
        );
        registry.register(
            "preview_logins",
            "Addresses of previews that were opened: ok, or error for those that let nobody in",
            preview_logins.clone(),
        );
        registry.register(
            "preview_requests",
            "Requests of previews: ok when a program answered, error when the server did in its place",
            preview_requests.clone(),
        );
        Self {
            registry,
            tools,
            operations,
            errors,
            requests,
            sessions,
            readers,
            components,
            backend_up,
            egress,
            warm_sandboxes,
            warm_lost,
            session_starts,
            egress_connections,
            egress_open,
            preview_logins,
            preview_requests,
        }
    }

    /// Adds the metric of lost spans if there is a collector.
    pub(crate) fn with_dropped_spans(mut self, dropped: Option<&DroppedSpans>) -> Self {
        if let Some(dropped) = dropped {
            self.registry.register(
                "trace_spans_dropped",
                "Spans of traces that did not reach the collector",
                dropped.0.clone(),
            );
        }
        self
    }

    pub(crate) fn tool_executed(&self, placement: &'static str, tool: &str, is_success: bool) {
        let labels = ToolLabels {
            placement,
            tool: tool_label(tool),
            outcome: outcome(is_success),
        };
        self.tools.get_or_create(&labels).inc();
    }

    pub(crate) fn operation(&self, operation: &'static str, backend: &'static str, took: Duration) {
        let labels = OperationLabels { operation, backend };
        self.operations
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    pub(crate) fn failed(&self, code: &'static str, tool: &str) {
        let tool = tool_label(tool);
        self.errors.get_or_create(&ErrorLabels { code, tool }).inc();
    }

    pub(crate) fn answered(&self, method: &http::Method, status: u16) {
        let known = ["GET", "POST", "PUT", "DELETE", "HEAD"];
        let method = known
            .into_iter()
            .find(|one| *one == method.as_str())
            .unwrap_or("other");
        self.requests
            .get_or_create(&RequestLabels { method, status })
            .inc();
    }

    pub(crate) fn reader_came(&self) {
        self.readers.inc();
    }

    pub(crate) fn reader_left(&self) {
        self.readers.dec();
    }

    pub(crate) fn component_checked(&self, component: &'static str, is_ready: bool) {
        let labels = ComponentLabels { component };
        self.components
            .get_or_create(&labels)
            .set(i64::from(is_ready));
    }

    /// Sets whether an address of the service is up.
    pub(crate) fn backend_checked(&self, backend: &'static str, place: &str, is_up: bool) {
        let place = place.to_owned();
        self.backend_up
            .get_or_create(&PlaceLabels { backend, place })
            .set(i64::from(is_up));
    }

    /// Adds the traffic and decisions of a sandbox or tool.
    pub(crate) fn egress(&self, news: &TrafficNews) {
        for (direction, bytes) in [("sent", news.sent_bytes), ("received", news.received_bytes)] {
            self.egress
                .get_or_create(&DirectionLabels { direction })
                .inc_by(bytes);
        }
        let count = |verdict, reason, count| {
            self.egress_connections
                .get_or_create(&VerdictLabels { verdict, reason })
                .inc_by(count);
        };
        count("allowed", "", news.allowed);
        count("failed", "", news.failed);
        for (word, refused) in &news.refused {
            // A supervisor of another version may send reasons that this one does not know.
            let known = EgressReason::ALL.into_iter().map(EgressReason::word);
            let reason = known
                .chain([WITHHELD_SECRET])
                .find(|known| known == word)
                .unwrap_or("other");
            count("refused", reason, *refused);
        }
    }

    /// Sets the number of open connections.
    pub(crate) fn egress_connections_open(&self, open: u64) {
        self.egress_open
            .set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    /// Counts a new session that has a sandbox.
    pub(crate) fn session_begun(&self, is_warm: bool) {
        let start = if is_warm { "warm" } else { "cold" };
        self.session_starts
            .get_or_create(&StartLabels { start })
            .inc();
    }

    /// Counts a login to a preview.
    pub(crate) fn preview_login(&self, is_in: bool) {
        let outcome = outcome(is_in);
        self.preview_logins
            .get_or_create(&OutcomeLabels { outcome })
            .inc();
    }

    /// Counts a preview request, answered by its program or by the server.
    pub(crate) fn preview_answered(&self, is_by_program: bool) {
        let outcome = outcome(is_by_program);
        self.preview_requests
            .get_or_create(&OutcomeLabels { outcome })
            .inc();
    }

    /// Returns all metrics as text, after setting those with a current value.
    pub(crate) fn encode(
        &self,
        running: usize,
        queued: usize,
        pool: Option<(usize, u64)>,
    ) -> String {
        let gauge = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let (warm, lost) = pool.unwrap_or_default();
        self.warm_sandboxes.set(gauge(warm as u64));
        self.warm_lost.set(gauge(lost));
        for (state, count) in [("running", running), ("queued", queued)] {
            let gauge = self.sessions.get_or_create(&StateLabels { state });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// Creates the counters with zero: a counter that only appears with its first value shows no
/// increase.
fn begin_at_zero(
    bytes: &Family<DirectionLabels, Counter>,
    connections: &Family<VerdictLabels, Counter>,
    starts: &Family<StartLabels, Counter>,
) {
    for start in ["warm", "cold"] {
        drop(starts.get_or_create(&StartLabels { start }));
    }
    for direction in ["sent", "received"] {
        drop(bytes.get_or_create(&DirectionLabels { direction }));
    }
    let reasons = EgressReason::ALL.into_iter().map(EgressReason::word);
    let refused = reasons.chain([WITHHELD_SECRET]);
    let refused = refused.map(|reason| ("refused", reason));
    for (verdict, reason) in [("allowed", ""), ("failed", "")].into_iter().chain(refused) {
        drop(connections.get_or_create(&VerdictLabels { verdict, reason }));
    }
}

const fn outcome(is_success: bool) -> &'static str {
    if is_success { "ok" } else { "error" }
}

/// Returns the name of a tool as a label, or `other` if the model chose a name that is none of
/// ours.
fn tool_label(tool: &str) -> String {
    glovebox_tools::find(tool).map_or_else(|_| "other".to_owned(), |tool| tool.name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_those_that_are_promised() {
        let dropped = DroppedSpans::default();
        let metrics = Metrics::new().with_dropped_spans(Some(&dropped));
        dropped.add(3);
        metrics.tool_executed("sandbox", "Bash", true);
        metrics.tool_executed("sandbox", "no such tool\"\n", false);
        metrics.operation("start", "native", Duration::from_millis(3));
        metrics.failed("timed-out", "Read");
        metrics.component_checked("sandbox", true);
        metrics.component_checked("disk", false);
        metrics.session_begun(true);
        metrics.backend_checked("aio", "http://box/1", true);
        let refused = [("unlisted", 2), (WITHHELD_SECRET, 1), ("evil\"\n", 1)];
        metrics.egress(&TrafficNews {
            sent_bytes: 5,
            allowed: 4,
            failed: 3,
            refused: refused.map(|(word, count)| (word.to_owned(), count)).into(),
            ..TrafficNews::default()
        });
        metrics.egress_connections_open(7);
        metrics.preview_login(true);
        metrics.preview_answered(false);
        let text = metrics.encode(2, 1, Some((3, 1)));
        for line in [
            r#"glovebox_tool_executions_total{placement="sandbox",tool="Bash",outcome="ok"} 1"#,
            r#"glovebox_tool_executions_total{placement="sandbox",tool="other",outcome="error"} 1"#,
            r#"glovebox_sandbox_operation_duration_seconds_bucket{le="600.0",operation="start",backend="native"} 1"#,
            r#"glovebox_sandbox_errors_total{code="timed-out",tool="Read"} 1"#,
            r#"glovebox_sessions{state="running"} 2"#,
            r#"glovebox_component_ready{component="sandbox"} 1"#,
            r#"glovebox_component_ready{component="disk"} 0"#,
            r#"glovebox_backend_up{backend="aio",place="http://box/1"} 1"#,
            r#"glovebox_egress_bytes_total{direction="sent"} 5"#,
            r#"glovebox_egress_bytes_total{direction="received"} 0"#,
            "glovebox_warm_sandboxes 3",
            "glovebox_warm_sandboxes_lost 1",
            r#"glovebox_session_starts_total{start="warm"} 1"#,
            r#"glovebox_egress_connections_total{verdict="allowed",reason=""} 4"#,
            r#"glovebox_egress_connections_total{verdict="failed",reason=""} 3"#,
            r#"glovebox_egress_connections_total{verdict="refused",reason="unlisted"} 2"#,
            r#"glovebox_egress_connections_total{verdict="refused",reason="secret"} 1"#,
            r#"glovebox_egress_connections_total{verdict="refused",reason="other"} 1"#,
            "glovebox_egress_connections_open 7",
            r#"glovebox_preview_logins_total{outcome="ok"} 1"#,
            r#"glovebox_preview_requests_total{outcome="error"} 1"#,
            "glovebox_trace_spans_dropped_total 3",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in:\n{text}");
        }
    }
}
