//! Delivery of ended spans to the collector. Spans are counted when they are queued and when they
//! are sent, so that the number of lost ones is exact.

use super::cannot_begin;
use super::config::TraceConfig;
use crate::metrics::DroppedSpans;
use glovebox_proto::Fault;
use opentelemetry::Context;
use opentelemetry_otlp::{
    Compression, Protocol, SpanExporter as OtlpExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor};
use reqwest::Client;
use reqwest::redirect::Policy;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tracing::{info, warn};

/// Counter of spans that have ended and were not sent yet.
#[derive(Debug)]
pub(super) struct SpanQueue {
    waiting: AtomicUsize,
    /// Maximum number of waiting spans, including those that are being sent.
    most: usize,
    /// Spans for which there was no room, and those of batches that were not delivered.
    pub(super) dropped: DroppedSpans,
}

impl SpanQueue {
    pub(super) fn new(most: usize) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            most,
            dropped: DroppedSpans::default(),
        }
    }

    /// Counts one more waiting span. Returns false, and counts it as dropped, if there is no room.
    fn take_place(&self) -> bool {
        let took = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
                (waiting < self.most).then_some(waiting + 1)
            });
        if took.is_err() {
            self.dropped.add(1);
        }
        took.is_ok()
    }

    /// Removes sent spans from those that wait. They count as dropped if they were not delivered.
    fn leave(&self, spans: usize, are_delivered: bool) {
        self.waiting.fetch_sub(spans, Ordering::Relaxed);
        if !are_delivered {
            self.dropped.add(spans as u64);
        }
    }

    /// Returns the number of lost spans if nothing more is sent.
    pub(super) fn lost(&self) -> u64 {
        self.dropped.count() + self.waiting.load(Ordering::Relaxed) as u64
    }
}

/// Span processor that passes on only as many spans as there is room for.
#[derive(Debug)]
pub(super) struct BoundedProcessor {
    batches: BatchSpanProcessor,
    queue: Arc<SpanQueue>,
}

impl BoundedProcessor {
    /// Wraps `batches`, whose own queue must have as much room.
    pub(super) const fn new(batches: BatchSpanProcessor, queue: Arc<SpanQueue>) -> Self {
        Self { batches, queue }
    }
}

impl SpanProcessor for BoundedProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.queue.take_place() {
            self.batches.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// Exporter that sends one batch after the other.
#[derive(Debug)]
pub(super) struct CollectorExporter {
    otlp: OtlpExporter,
    /// Runtime of the sending thread.
    runtime: Runtime,
    queue: Arc<SpanQueue>,
    /// Number of dropped spans at the end of the previous batch.
    told: AtomicU64,
    is_troubled: AtomicBool,
}

impl CollectorExporter {
    /// Creates the exporter.
    ///
    /// # Errors
    /// Fails if no HTTP client can be created.
    pub(super) fn open(config: &TraceConfig, queue: Arc<SpanQueue>) -> Result<Self, Fault> {
        let mut builder = OtlpExporter::builder()
            .with_http()
            .with_http_client(client(config)?)
            .with_endpoint(config.endpoint.as_str())
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(config.timeout);
        if config.is_compressed {
            builder = builder.with_compression(Compression::Gzip);
        }
        Ok(Self {
            otlp: builder.build().map_err(cannot_begin)?,
            runtime: Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(cannot_begin)?,
            queue,
            told: AtomicU64::new(0),
            is_troubled: AtomicBool::new(false),
        })
    }

    /// Logs once when spans begin to be lost, and once when they arrive again.
    fn tell(&self, result: &OTelSdkResult) {
        let dropped = self.queue.dropped.count();
        let is_dropping = self.told.swap(dropped, Ordering::Relaxed) < dropped;
        let problem = match result {
            Err(error) => Some(error.to_string()),
            Ok(()) if is_dropping => Some("it takes spans too slowly".to_owned()),
            Ok(()) => None,
        };
        let was_troubled = self.is_troubled.swap(problem.is_some(), Ordering::Relaxed);
        match (was_troubled, problem) {
            (false, Some(problem)) => warn!(
                problem,
                dropped, "the collector does not take all spans of traces; the others are dropped"
            ),
            (true, None) => info!(dropped, "the collector takes spans of traces again"),
            _ => {}
        }
    }
}

impl SpanExporter for CollectorExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        // Blocking is safe: the sending thread has no other work and no runtime of its own.
        let result = self.runtime.block_on(self.otlp.export(batch));
        self.queue.leave(spans, result.is_ok());
        self.tell(&result);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.otlp.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.otlp.set_resource(resource);
    }
}

/// Creates the HTTP client of the collector.
fn client(config: &TraceConfig) -> Result<Client, Fault> {
    // An error means that a provider is already installed, which is the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .default_headers(config.headers.clone())
        .timeout(config.timeout)
        // A redirect would send the headers, which may hold a key, to another server.
        .redirect(Policy::none())
        // Idle connections are not kept: one closed by the collector between two batches would fail
        // the next.
        .pool_max_idle_per_host(0);
    let builder = if config.is_here() {
        builder.no_proxy()
    } else {
        builder
    };
    builder.build().map_err(cannot_begin)
}
