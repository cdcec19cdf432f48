//! The request header `Accept` (RFC 9110, 12.5.1).

use http::HeaderMap;
use http::header::ACCEPT;

/// Returns true if the client accepts this media type, such as `application/json`. Without the
/// header it accepts any.
pub(super) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    if !headers.contains_key(ACCEPT) {
        return true;
    }
    let (kind, _) = media_type.split_once('/').unwrap_or((media_type, ""));
    let any_of_kind = format!("{kind}/*");
    let ranges = headers
        .get_all(ACCEPT)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next()?;
            let precision = match name {
                "*/*" | "*" => 1,
                _ if name.eq_ignore_ascii_case(&any_of_kind) => 2,
                _ if name.eq_ignore_ascii_case(media_type) => 3,
                _ => return None,
            };
            Some((precision, !parts.any(is_zero_weight)))
        });
    // The most specific range decides, regardless of the order.
    ranges
        .max_by_key(|(precision, _)| *precision)
        .is_some_and(|(_, is_taken)| is_taken)
}

/// Returns true for a parameter such as `q=0.0`. A weight that is not a number excludes nothing.
fn is_zero_weight(parameter: &str) -> bool {
    let weight = parameter.split_once('=').and_then(|(name, weight)| {
        name.trim()
            .eq_ignore_ascii_case("q")
            .then_some(weight.trim())
    });
    weight
        .and_then(|weight| weight.parse::<f32>().ok())
        .is_some_and(|weight| weight <= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_weights_decide() {
        for (header, takes) in [
            (None, true),
            (Some("*/*"), true),
            (Some("*"), true),
            (Some("application/*"), true),
            (Some("Application/JSON; charset=utf-8"), true),
            (Some("text/event-stream, application/json;q=0.1"), true),
            (Some("application/json;q=abc"), true),
            (Some("text/html, */*;q=0.8"), true),
            (Some("application/json;q=0, */*"), false),
            (Some("*/*, application/json; q=0.000"), false),
            (Some("application/*;q=0, */*"), false),
            (Some("*/*;q=0"), false),
            (Some("text/html"), false),
            (Some(""), false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(ACCEPT, header.parse().unwrap());
            }
            assert_eq!(accepts(&headers, "application/json"), takes, "{header:?}");
        }
        let mut both = HeaderMap::new();
        both.append(ACCEPT, "application/json".parse().unwrap());
        both.append(ACCEPT, "text/event-stream".parse().unwrap());
        assert!(accepts(&both, "application/json") && accepts(&both, "text/event-stream"));
    }
}
