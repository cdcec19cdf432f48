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

/// Minimum and maximum time after which an unused sandbox is stopped.
const IDLE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_hours(24 * 30));
/// Word for an unused sandbox that keeps running.
const NEVER: &str = "never";

/// Checks the value of an option that says after which time an unused sandbox is stopped.
///
/// # Errors
/// One sentence if the value is neither such a time nor `never`.
pub fn check_idle(text: &str) -> Result<(), String> {
    if text == NEVER || read_time(text, IDLE).is_some() {
        return Ok(());
    }
    Err("write a time between 1s and 720h, such as 10m, or `never`".to_owned())
}

/// Returns the time after which an unused sandbox is stopped: the value of `option` in the spec,
/// else `usual`. `None` if it keeps running.
pub fn idle_time(
    spec: &SandboxSpec,
    option: &BackendOption,
    usual: Option<Duration>,
) -> Option<Duration> {
    match spec.option(option.name).first() {
        Some(text) => read_time(text, IDLE),
        None => usual,
    }
}

fn check_window(text: &str) -> Result<(), String> {
    read_time(text, WINDOW)
        .map(drop)
        .ok_or_else(|| "write a time between 1s and 24h, such as 90s or 5m".to_owned())
}

/// Parses a number of seconds, minutes or hours within `bounds`.
fn read_time(text: &str, bounds: (Duration, Duration)) -> Option<Duration> {
    let units = [("s", 1), ("m", 60), ("h", 3600)];
    let (number, factor) = units
        .into_iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let seconds = number.parse::<u64>().ok()?.checked_mul(factor)?;
    let time = Duration::from_secs(seconds);
    (bounds.0..=bounds.1).contains(&time).then_some(time)
}

/// Returns the times of a link, with the window of the spec.
pub fn times(spec: &SandboxSpec) -> Times {
    let usual = Times::default();
    let given = spec.option(RECONNECT.name).first();
    Times {
        window: given
            .and_then(|text| read_time(text, WINDOW))
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
            assert_eq!(read_time(text, WINDOW), Some(Duration::from_secs(seconds)));
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
            assert_eq!(read_time(text, WINDOW), None, "{text}");
            assert!(check_window(text).is_err());
            assert!(check_idle(text).is_err() || text == "25h", "{text}");
        }
        for text in ["never", "1s", "10m", "720h"] {
            assert!(check_idle(text).is_ok(), "{text}");
        }
        assert!(check_idle("721h").is_err());
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
