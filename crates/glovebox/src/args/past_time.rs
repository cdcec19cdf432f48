//! Times in the past, as people write them.

use glovebox_settings::units::Span;
use jiff::Timestamp;
use std::str::FromStr;

/// Time in the past: a time of RFC 3339, or an age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PastTime {
    /// Milliseconds since 1970.
    At(u64),
    /// Milliseconds before now.
    Ago(u64),
}

impl PastTime {
    /// Returns the time in milliseconds since 1970.
    pub(crate) const fn to_unix_ms(self, now_unix_ms: u64) -> u64 {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => now_unix_ms.saturating_sub(ago),
        }
    }
}

impl FromStr for PastTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(Span(Some(ago))) = text.parse() {
            return Ok(Self::Ago(ago));
        }
        let at = text.parse::<Timestamp>().ok();
        let at = at.and_then(|at| u64::try_from(at.as_millisecond()).ok());
        at.map(Self::At).ok_or_else(|| {
            format!("`{text}` is no time, such as 2026-11-28T12:00:00Z, or 24h for a day ago")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_people_write_them() {
        let read = |text: &str| {
            text.parse::<PastTime>()
                .map(|time| time.to_unix_ms(100_000_000))
        };
        assert_eq!(read("1970-01-01T00:00:05Z").unwrap(), 5000);
        assert_eq!(read("1970-01-01T02:00:05.25+02:00").unwrap(), 5250);
        assert_eq!(read("24h").unwrap(), 13_600_000);
        assert_eq!(read("100h").unwrap(), 0);
        for text in [
            "",
            "yesterday",
            "none",
            "2026-11-28",
            "1960-01-01T00:00:00Z",
            "12",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
