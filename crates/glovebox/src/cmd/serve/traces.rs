//! Traces of `serve`: spans of requests, sessions, model responses and calls, sent to an
//! OpenTelemetry collector. Needs the feature `otlp`.

#[cfg(feature = "otlp")]
pub(super) use glovebox_server::TraceExport;

use glovebox_settings::Surroundings;
use tracing::warn;

/// Variables that name a collector.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
];

/// Warns that no traces are sent if a variable names a collector and this program is built without
/// the feature.
pub(super) fn warn_where_left_out(host: &Surroundings) {
    if let Some(variable) = ignored_variable(host, cfg!(feature = "otlp")) {
        warn!(
            variable,
            "no traces are sent: the variable names a collector, and this program is built without the feature `otlp`"
        );
    }
}

fn ignored_variable(host: &Surroundings, is_built_in: bool) -> Option<&'static str> {
    let mut variables = ENDPOINTS.into_iter();
    variables.find(|name| !is_built_in && host.var(name).is_some())
}

/// Placeholder for the exporter in a program without the feature; it has no value.
#[cfg(not(feature = "otlp"))]
#[derive(Debug)]
pub(super) enum TraceExport {}

#[cfg(not(feature = "otlp"))]
impl TraceExport {
    #[expect(
        clippy::unnecessary_wraps,
        reason = "with the feature it reads variables, which may be wrong"
    )]
    pub(super) const fn open(_: &Surroundings) -> Result<Option<Self>, glovebox_proto::Fault> {
        Ok(None)
    }

    pub(super) const fn collector(&self) -> &str {
        match *self {}
    }

    pub(super) const fn dropped_spans(&self) -> glovebox_server::DroppedSpans {
        match *self {}
    }

    pub(super) const fn layer(&self) -> tracing_subscriber::layer::Identity {
        match *self {}
    }

    pub(super) const fn end(&self) {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_collector_that_gets_nothing_is_told_by_its_variable() {
        let host = |vars: &[(&str, &str)]| {
            Surroundings::fixed(Path::new("/home"), Path::new("/home"), vars)
        };
        for name in ENDPOINTS {
            let host = host(&[(name, "http://localhost:4318")]);
            assert_eq!(ignored_variable(&host, false), Some(name));
            assert_eq!(ignored_variable(&host, true), None);
        }
        assert_eq!(ignored_variable(&host(&[(ENDPOINTS[0], "")]), false), None);
        assert_eq!(ignored_variable(&host(&[]), false), None);
    }
}
