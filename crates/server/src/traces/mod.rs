//! Traces to an OpenTelemetry collector, over OTLP with protobuf on HTTP. Built with the feature
//! `otlp` only.
//!
//! ```text
//! spans of `tracing` (crate::log) -> TraceExport::layer -> BoundedProcessor, a bounded queue
//!                                                          -> one thread: CollectorExporter
//! environment -> TraceConfig, validated                       -> the collector
//! ```
//!
//! Only spans are sent, never log lines. The thread that ends a span does not wait: the span is
//! added to a bounded queue or counted as dropped. Only the sending thread waits for the collector.

mod config;
mod export;

use crate::metrics::DroppedSpans;
use config::TraceConfig;
use export::{BoundedProcessor, CollectorExporter, SpanQueue};
use glovebox_proto::{Code, Fault};
use glovebox_settings::Surroundings;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider};
use std::sync::Arc;
use std::time::Duration;
use tracing::{Metadata, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::Registry;

/// Name of the instrumentation scope.
const SCOPE: &str = "glovebox";
/// Maximum time to send waiting spans when the server ends.
const END_WAIT: Duration = Duration::from_secs(2);

/// Export of spans to a collector, on its own thread.
#[derive(Debug)]
pub struct TraceExport {
    provider: SdkTracerProvider,
    queue: Arc<SpanQueue>,
    collector: String,
}

impl TraceExport {
    /// Starts the export if the standard variables of OpenTelemetry (`OTEL_EXPORTER_OTLP_ENDPOINT`)
    /// name a collector. Otherwise returns None.
    ///
    /// # Errors
    /// `invalid-argument` for an invalid variable, with its name and without its value; fails also
    /// if no client can be created.
    pub fn open(host: &Surroundings) -> Result<Option<Self>, Fault> {
        let Some(config) = TraceConfig::read(host)? else {
            return Ok(None);
        };
        let collector = config.endpoint.origin().ascii_serialization();
        let queue = Arc::new(SpanQueue::new(config.queue_spans));
        let exporter = CollectorExporter::open(&config, Arc::clone(&queue))?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(config.queue_spans)
            .with_max_export_batch_size(config.batch_spans)
            .with_scheduled_delay(config.delay)
            .build();
        let processor = BatchSpanProcessor::builder(exporter)
            .with_batch_config(batches)
            .build();
        let provider = SdkTracerProvider::builder()
            .with_sampler(config.sampler)
            .with_resource(resource(config.resource))
            .with_span_processor(BoundedProcessor::new(processor, Arc::clone(&queue)))
            .build();
        Ok(Some(Self {
            provider,
            queue,
            collector,
        }))
    }

    /// Returns the address of the collector: scheme, host and port.
    pub fn collector(&self) -> &str {
        &self.collector
    }

    /// Returns the counter of spans that did not reach the collector.
    pub fn dropped_spans(&self) -> DroppedSpans {
        self.queue.dropped.clone()
    }

    /// Returns the `tracing` layer that records spans.
    pub fn layer(&self) -> impl Layer<Registry> + Send + Sync + use<> {
        let scope = InstrumentationScope::builder(SCOPE)
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer_with_scope(scope))
            // Source locations and threads are of no use to an operator.
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            // Events are filtered out: log lines may say more than spans do.
            .with_filter(filter_fn(is_span))
    }

    /// Sends the waiting spans, blocking for at most two seconds. Spans that end later are lost.
    pub fn end(&self) {
        // Success is visible in the number of lost spans.
        let _ = self.provider.shutdown_with_timeout(END_WAIT);
        let lost = self.queue.lost();
        if lost > 0 {
            warn!(
                spans = lost,
                "spans of traces did not reach the collector, and are lost"
            );
        }
    }
}

fn is_span(metadata: &Metadata<'_>) -> bool {
    metadata.is_span()
}

/// Returns the attributes that all spans of this program share.
fn resource(attributes: Vec<(String, String)>) -> Resource {
    let attributes = attributes
        .into_iter()
        .map(|(name, value)| KeyValue::new(name, value));
    Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attributes(attributes)
        .build()
}

/// Returns the fault for an export that cannot be started.
fn cannot_begin(error: impl std::fmt::Display) -> Fault {
    Fault::failed(Code::Io, format!("traces cannot be sent: {error}"))
}
