//! Options that the backends on other machines share, and their values.

use crate::times::Times;
use glovebox_sandbox::{BASE_URL_OPTION, BackendOption, SandboxSpec};
use std::time::Duration;

/// Address of the service.
pub const BASE_URL: BackendOption = BackendOption {
    name: BASE_URL_OPTION,
    flag: "base-url",
    variable: "GLOVEBOX_BASE_URL",
    value: "URL",
    help: "With a backend that is a service: its address; https, or http on loopback and private addresses",
    meaning: "with a backend that is a service: its address, `https`, or `http` on loopback and private addresses",
    is_path: false,
    check: check_url,
};

/// Time for which the link tries to replace a broken connection.
pub const RECONNECT: BackendOption = BackendOption {
    name: "reconnect",
    flag: "reconnect",
    variable: "GLOVEBOX_RECONNECT",
    value: "TIME",
    help: "With a backend that is a service: how long a broken connection is opened again, such as 5m [default: 60s]",
    meaning: "with a backend that is a service: how long a broken connection is opened again before the sandbox counts \
              as lost",
    is_path: false,
    check: check_window,
};

/// Minimum and maximum of that time.
const WINDOW: (Duration, Duration) = (Duration::from_secs(1), Duration::from_hours(24));

fn check_url(text: &str) -> Result<(), String> {
    let has_scheme = |url: &str| url.starts_with("https://") || url.starts_with("http://");
    // A server may have several addresses.
    let mut urls = text.split(' ').peekable();
    if urls.peek().is_some()
        && urls.all(|url| has_scheme(url) && !url.contains(char::is_whitespace))
    {
        return Ok(());
    }
    Err("write an address that begins with https:// or http://".to_owned())
}

fn check_window(text: &str) -> Result<(), String> {
    read_window(text)
        .map(drop)
        .ok_or_else(|| "write a time between 1s and 24h, such as 90s or 5m".to_owned())
}

/// Parses a number of seconds, minutes or hours.
fn read_window(text: &str) -> Option<Duration> {
    let units = [("s", 1), ("m", 60), ("h", 3600)];
    let (number, factor) = units
        .into_iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let seconds = number.parse::<u64>().ok()?.checked_mul(factor)?;
    let window = Duration::from_secs(seconds);
    (WINDOW.0..=WINDOW.1).contains(&window).then_some(window)
}

/// Returns the times of a link, with the window of the spec.
pub fn times(spec: &SandboxSpec) -> Times {
    let usual = Times::default();
    let given = spec.option(RECONNECT.name).first();
    Times {
        window: given
            .and_then(|text| read_window(text))
            .unwrap_or(usual.window),
        ..usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read_and_bounded() {
        for (text, seconds) in [("3s", 3), ("5m", 300), ("24h", 86_400)] {
            assert_eq!(read_window(text), Some(Duration::from_secs(seconds)));
        }
        for text in [
            "",
            "s",
            "0s",
            "25h",
            "5",
            "-1s",
            "5ms",
            "1.5m",
            "9999999999999999999h",
            "5\u{b5}",
        ] {
            assert_eq!(read_window(text), None, "{text}");
            assert!(check_window(text).is_err());
        }
        for text in ["https://x.test/p", "https://x http://y/{name}"] {
            assert!(check_url(text).is_ok(), "{text}");
        }
        for text in [
            "",
            "x.test",
            "ftp://x",
            "https://x y",
            "https://x ",
            "https://x\thttps://y",
        ] {
            assert!(check_url(text).is_err(), "{text}");
        }
    }
}
