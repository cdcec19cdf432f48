//! Configuration of traces: the standard variables of OpenTelemetry, validated before the server
//! starts.
//!
//! A variable for traces (`OTEL_EXPORTER_OTLP_TRACES_*`) takes precedence over the one for all
//! signals (`OTEL_EXPORTER_OTLP_*`). An empty variable counts as unset. An error names the variable
//! and its allowed values, but never its value, which may hold a key.

use glovebox_proto::{Code, Fault};
use glovebox_settings::Surroundings;
use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry_sdk::trace::Sampler;
use reqwest::Url;
use std::ops::RangeInclusive;
use std::time::Duration;

const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];
const HEADERS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_HEADERS",
];
const PROTOCOLS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
];
const COMPRESSIONS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION",
    "OTEL_EXPORTER_OTLP_COMPRESSION",
];
const TIMEOUTS_MS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
];
const SDK_DISABLED: &str = "OTEL_SDK_DISABLED";
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const RESOURCE_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
const QUEUE_SPANS: &str = "OTEL_BSP_MAX_QUEUE_SIZE";
const BATCH_SPANS: &str = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE";
const DELAY_MS: &str = "OTEL_BSP_SCHEDULE_DELAY";

/// Path that is appended to an endpoint for all signals.
const TRACES_PATH: &str = "/v1/traces";
/// Maximum length of a variable's value.
const MAX_VALUE_BYTES: usize = 16 << 10;
/// Maximum number of headers, and of attributes of the resource.
const MAX_PAIRS: usize = 64;
const MAX_SPANS: u64 = 1_000_000;
const MAX_MS: u64 = 300_000;

/// Configuration of traces.
#[derive(Debug)]
pub(super) struct TraceConfig {
    pub(super) endpoint: Url,
    /// Request headers, marked as sensitive so that `Debug` does not print their values.
    pub(super) headers: HeaderMap,
    /// Timeout of one batch.
    pub(super) timeout: Duration,
    pub(super) is_compressed: bool,
    pub(super) sampler: Sampler,
    /// Attributes of all spans, including the name of the service.
    pub(super) resource: Vec<(String, String)>,
    /// Maximum number of waiting spans.
    pub(super) queue_spans: usize,
    /// Maximum number of spans in a batch.
    pub(super) batch_spans: usize,
    /// Pause between two batches.
    pub(super) delay: Duration,
}

impl TraceConfig {
    /// Reads the configuration. None if no collector is named or traces are turned off.
    ///
    /// # Errors
    /// `invalid-argument` for the first invalid variable.
    pub(super) fn read(host: &Surroundings) -> Result<Option<Self>, Fault> {
        let vars = Variables(host);
        let disabled = vars.value(SDK_DISABLED)?;
        if disabled.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        match vars.value(EXPORTER)?.as_deref() {
            Some("none") => return Ok(None),
            Some("otlp") | None => {}
            Some(_) => {
                return Err(wrong(
                    EXPORTER,
                    "names another exporter",
                    "`otlp` or `none`",
                ));
            }
        }
        let Some(endpoint) = endpoint(&vars)? else {
            return Ok(None);
        };
        if let Some((name, value)) = vars.first(PROTOCOLS)?
            && value != "http/protobuf"
        {
            let remedy = "`http/protobuf`, whose port is usually 4318";
            return Err(wrong(name, "names another protocol", remedy));
        }
        let compression = vars.first(COMPRESSIONS)?;
        let is_compressed = match compression
            .as_ref()
            .map(|(name, value)| (name, value.as_str()))
        {
            Some((_, "gzip")) => true,
            Some((_, "none")) | None => false,
            Some((name, _)) => {
                return Err(wrong(name, "names another compression", "`gzip` or `none`"));
            }
        };
        let timeout = match vars.first(TIMEOUTS_MS)? {
            Some((name, value)) => number(name, &value, 1..=MAX_MS)?,
            None => 10_000,
        };
        let queue_spans = vars.number(QUEUE_SPANS, 2048, 1..=MAX_SPANS)?;
        let batch_spans = vars.number(BATCH_SPANS, 512, 1..=MAX_SPANS)?;
        let delay = vars.number(DELAY_MS, 5000, 1..=MAX_MS)?;
        Ok(Some(Self {
            endpoint,
            headers: headers(&vars)?,
            timeout: Duration::from_millis(timeout),
            is_compressed,
            sampler: sampler(&vars)?,
            resource: resource(&vars)?,
            queue_spans: queue_spans as usize,
            batch_spans: batch_spans.min(queue_spans) as usize,
            delay: Duration::from_millis(delay),
        }))
    }

    /// Returns true if the collector is on this machine, where no proxy is used.
    pub(super) fn is_here(&self) -> bool {
        match self.endpoint.host_str() {
            Some("localhost" | "[::1]") => true,
            Some(name) => name.starts_with("127."),
            None => false,
        }
    }
}

/// Environment variables of this process.
struct Variables<'a>(&'a Surroundings);

impl Variables<'_> {
    /// Returns the trimmed value of a variable. None if it is unset or empty.
    fn value(&self, name: &str) -> Result<Option<String>, Fault> {
        let Some(value) = self.0.var(name) else {
            return Ok(None);
        };
        match value.to_str() {
            Some(text) if text.len() <= MAX_VALUE_BYTES => {
                let text = text.trim();
                Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
            }
            _ => Err(wrong(
                name,
                "is too long, or is no text",
                "16 KiB of UTF-8 at most",
            )),
        }
    }

    /// Returns the first of these variables that is set, with its name.
    fn first(&self, names: [&'static str; 2]) -> Result<Option<(&'static str, String)>, Fault> {
        for name in names {
            if let Some(value) = self.value(name)? {
                return Ok(Some((name, value)));
            }
        }
        Ok(None)
    }

    fn number(&self, name: &str, usual: u64, range: RangeInclusive<u64>) -> Result<u64, Fault> {
        match self.value(name)? {
            Some(value) => number(name, &value, range),
            None => Ok(usual),
        }
    }
}

/// Returns the error for an invalid variable, with its allowed values.
fn wrong(name: &str, problem: &str, remedy: &str) -> Fault {
    let message = format!("the variable {name} {problem}");
    Fault::failed(Code::InvalidArgument, message).remedy(format!("set it to {remedy}, or unset it"))
}

fn number(name: &str, value: &str, range: RangeInclusive<u64>) -> Result<u64, Fault> {
    let number = value.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let remedy = format!("a number from {} to {}", range.start(), range.end());
        wrong(name, "is no number that is possible", &remedy)
    })
}

/// Returns the URL to which batches are posted.
fn endpoint(vars: &Variables<'_>) -> Result<Option<Url>, Fault> {
    let Some((name, value)) = vars.first(ENDPOINTS)? else {
        return Ok(None);
    };
    let malformed = |problem: &str| {
        wrong(
            name,
            problem,
            "the address of a collector, such as http://localhost:4318",
        )
    };
    let mut url =
        Url::parse(&value).map_err(|error| malformed(&format!("is no address: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(malformed("begins with neither http:// nor https://"));
    }
    if name == ENDPOINTS[1] {
        let path = format!("{}{TRACES_PATH}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    // The exporter parses the URL with this type; check it here, so that an error names the
    // variable.
    let is_usable = url.as_str().parse::<http::Uri>().is_ok();
    if is_usable {
        Ok(Some(url))
    } else {
        Err(malformed("is no address of HTTP"))
    }
}

/// Parses `NAME=VALUE,NAME=VALUE` with percent-encoded values.
fn pairs(name: &str, value: &str) -> Result<Vec<(String, String)>, Fault> {
    let malformed = |at: usize| {
        let problem = format!("has an entry that is not NAME=VALUE, its number {}", at + 1);
        wrong(
            name,
            &problem,
            "NAME=VALUE,NAME=VALUE, with %2C for a comma in a value",
        )
    };
    let entries = value.split(',').map(str::trim).enumerate();
    let mut pairs = Vec::new();
    for (at, entry) in entries.filter(|(_, entry)| !entry.is_empty()) {
        let (key, value) = entry.split_once('=').ok_or_else(|| malformed(at))?;
        let (key, value) = (key.trim(), unescaped(value.trim()));
        match value {
            Some(value) if !key.is_empty() && pairs.len() < MAX_PAIRS => {
                pairs.push((key.to_owned(), value));
            }
            _ => return Err(malformed(at)),
        }
    }
    Ok(pairs)
}

/// Decodes percent-encoding. None if it is invalid.
fn unescaped(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let digits = piece.get(..2)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

fn headers(vars: &Variables<'_>) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::new();
    let Some((variable, value)) = vars.first(HEADERS)? else {
        return Ok(headers);
    };
    for (at, (name, value)) in pairs(variable, &value)?.into_iter().enumerate() {
        let header = HeaderName::try_from(name).ok();
        let value = HeaderValue::try_from(value).ok();
        let (Some(header), Some(mut value)) = (header, value) else {
            let problem = format!("has an entry that can be no header, its number {}", at + 1);
            return Err(wrong(variable, &problem, "NAME=VALUE,NAME=VALUE"));
        };
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

fn sampler(vars: &Variables<'_>) -> Result<Sampler, Fault> {
    let name = vars.value(SAMPLER)?;
    let ratio = || match vars.value(SAMPLER_ARG)? {
        None => Ok(1.0),
        Some(value) => {
            let ratio = value.parse().ok();
            let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
            ratio.ok_or_else(|| wrong(SAMPLER_ARG, "is no share", "a number from 0 to 1"))
        }
    };
    let with_parent = |root| Sampler::ParentBased(Box::new(root));
    Ok(match name.as_deref() {
        None | Some("parentbased_always_on") => with_parent(Sampler::AlwaysOn),
        Some("parentbased_always_off") => with_parent(Sampler::AlwaysOff),
        Some("parentbased_traceidratio") => with_parent(Sampler::TraceIdRatioBased(ratio()?)),
        Some("always_on") => Sampler::AlwaysOn,
        Some("always_off") => Sampler::AlwaysOff,
        Some("traceidratio") => Sampler::TraceIdRatioBased(ratio()?),
        Some(_) => {
            let remedy =
                "`always_on`, `always_off`, `traceidratio`, or one of them after `parentbased_`";
            return Err(wrong(SAMPLER, "names another sampler", remedy));
        }
    })
}

/// Returns the attributes of all spans. A later attribute of the same name takes precedence.
fn resource(vars: &Variables<'_>) -> Result<Vec<(String, String)>, Fault> {
    let mut attributes = vec![("service.name".to_owned(), "glovebox".to_owned())];
    if let Some(value) = vars.value(RESOURCE_ATTRIBUTES)? {
        attributes.extend(pairs(RESOURCE_ATTRIBUTES, &value)?);
    }
    if let Some(name) = vars.value(SERVICE_NAME)? {
        attributes.push(("service.name".to_owned(), name));
    }
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn read(vars: &[(&str, &str)]) -> Result<Option<TraceConfig>, Fault> {
        TraceConfig::read(&Surroundings::fixed(
            Path::new("/home"),
            Path::new("/home"),
            vars,
        ))
    }

    const HERE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");

    #[test]
    fn without_an_endpoint_or_with_a_wish_to_be_off_there_are_no_traces() {
        for vars in [
            &[][..],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")],
            &[HERE, ("OTEL_SDK_DISABLED", "TRUE")],
            &[HERE, ("OTEL_TRACES_EXPORTER", "none")],
            &[("OTEL_TRACES_SAMPLER", "nonsense")],
        ] {
            assert!(read(vars).unwrap().is_none(), "{vars:?}");
        }
    }

    #[test]
    fn an_endpoint_of_all_signals_gets_the_path_and_one_of_traces_is_taken_as_it_is() {
        for (all, traces, expected) in [
            (
                "http://localhost:4318",
                "",
                "http://localhost:4318/v1/traces",
            ),
            (
                "https://a.example/otlp/",
                "",
                "https://a.example/otlp/v1/traces",
            ),
            ("http://localhost:4318", "http://b:1/x", "http://b:1/x"),
            ("", "http://b:1", "http://b:1/"),
        ] {
            let vars = [
                ("OTEL_EXPORTER_OTLP_ENDPOINT", all),
                ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", traces),
            ];
            let config = read(&vars).unwrap().unwrap();
            assert_eq!(config.endpoint.as_str(), expected);
        }
    }

    #[test]
    fn values_are_read_as_the_field_has_them() {
        let config = read(&[
            HERE,
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=lost"),
            (
                "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
                " X-Key = a%2Cb=c , authorization=Basic%20eA== ",
            ),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "deployment.environment=a%20b,service.name=no",
            ),
            ("OTEL_SERVICE_NAME", "agents"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "16"),
        ])
        .unwrap()
        .unwrap();
        assert_eq!(config.headers["x-key"], "a,b=c");
        assert_eq!(config.headers["authorization"], "Basic eA==");
        assert!(!format!("{config:?}").contains("eA=="), "{config:?}");
        assert_eq!(config.resource.last().unwrap().1, "agents");
        assert_eq!(config.resource[1].1, "a b");
        assert!(config.is_compressed && config.is_here());
        assert_eq!(config.timeout, Duration::from_millis(250));
        assert_eq!((config.queue_spans, config.batch_spans), (16, 16));
        assert_eq!(
            format!("{:?}", config.sampler),
            "ParentBased(TraceIdRatioBased(0.25))"
        );
    }

    #[test]
    fn what_cannot_be_understood_is_named_without_its_value() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "hush"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "hush:4318"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://u:hush@:99999"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "hush"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "hush"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b,=hush"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=hush%0a"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=hush%zz"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=hush%+1"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "hu sh=b"),
            ("OTEL_TRACES_EXPORTER", "hush"),
            ("OTEL_TRACES_SAMPLER", "hush"),
            ("OTEL_RESOURCE_ATTRIBUTES", "hush"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "99999999"),
            ("OTEL_BSP_SCHEDULE_DELAY", "-1"),
        ] {
            let fault = read(&[HERE, (name, value)]).unwrap_err();
            let told = format!("{fault:?}");
            assert_eq!(fault.code, Code::InvalidArgument);
            assert!(fault.message.contains(name), "{told}");
            assert!(!told.contains("hush") && fault.remedy.is_some(), "{told}");
        }
        let vars = [HERE, (SAMPLER, "traceidratio"), (SAMPLER_ARG, "2")];
        assert!(read(&vars).unwrap_err().message.contains(SAMPLER_ARG));
    }
}
