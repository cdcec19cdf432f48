//! Traces to a collector of OpenTelemetry, over OTLP with protobuf on HTTP; built with the feature `otlp` only.
//!
//! ```text
//! spans of `tracing` (crate::log)  ->  TraceExport::layer  ->  BoundedProcessor  ->  one thread: CollectorExporter
//! environment  ->  TraceConfig, checked                        takes no more than its queue       -> the collector
//! ```
//!
//! Only spans are sent, never lines of the log. Whoever ends a span does not wait: it goes into a queue of bounded length,
//! or is counted as dropped. What the collector does, or does not, is met by the one thread that sends.

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

/// What spans come from.
const SCOPE: &str = "glovebox";
/// How long spans that wait may be sent when the server ends.
const END_WAIT: Duration = Duration::from_secs(2);

/// Sends spans to a collector, on a thread of its own.
#[derive(Debug)]
pub struct TraceExport {
    provider: SdkTracerProvider,
    queue: Arc<SpanQueue>,
    collector: String,
}

impl TraceExport {
    /// Begins, where the standard variables of OpenTelemetry (`OTEL_EXPORTER_OTLP_ENDPOINT`) name a collector.
    ///
    /// # Errors
    /// `invalid-argument` for a variable that cannot be understood, by its name and without its value; when no client can
    /// be made.
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

    /// Where the collector is: scheme, host and port.
    pub fn collector(&self) -> &str {
        &self.collector
    }

    /// How many spans do not reach it.
    pub fn dropped_spans(&self) -> DroppedSpans {
        self.queue.dropped.clone()
    }

    /// What hears of spans.
    pub fn layer(&self) -> impl Layer<Registry> + Send + Sync + use<> {
        let scope = InstrumentationScope::builder(SCOPE)
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer_with_scope(scope))
            // Nothing of the source or its threads, which tell an operator nothing.
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            // Lines of the log may say more than spans do.
            .with_filter(filter_fn(is_span))
    }

    /// Sends what waits, for two seconds at most. Spans that end later are lost.
    pub fn end(&self) {
        // Whether it succeeded is in what is left.
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

/// What the spans of this program have in common.
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

/// A client that cannot be made.
fn cannot_begin(error: impl std::fmt::Display) -> Fault {
    Fault::failed(Code::Io, format!("traces cannot be sent: {error}"))
}
