//! Amounts in the form that people write: sizes, spans of time, shares of a CPU, counts.
//!
//! Each type parses the text of a flag, a variable or a configuration key; the error is one
//! sentence that names every accepted form. `none` always means no limit, so each type wraps an
//! `Option`. A displayed amount parses back to the same amount.

use std::fmt;
use std::str::FromStr;

/// Size in bytes; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub Option<u64>);

/// Span of time in milliseconds; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Option<u64>);

/// Share of CPU time in thousandths of one CPU; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpus(pub Option<u32>);

/// Count; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub Option<u32>);

const SIZE_FORMS: &str = "write a size like 512MiB, 1GiB, 64k or 1500000, or `none` for no limit";
const SPAN_FORMS: &str = "write a time like 300s, 5m, 1h, 500ms or 1h30m, or `none` for no limit";
const CPUS_FORMS: &str = "write a number of CPUs like 1, 2 or 0.5, or `none` for no limit";
const COUNT_FORMS: &str = "write a whole number like 1024, or `none` for no limit";

/// Binary units with their short and full names, and decimal units of the SI.
const SIZE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
];

const SPAN_UNITS: &[(&str, u64)] = &[
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Longest span, as on the wire.
const MAX_SPAN_MS: u64 = glovebox_proto::limits::MAX_TIMEOUT_MS;

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if is_none(text) {
            return Ok(Self(None));
        }
        let bad = || format!("`{text}` is not a size; {SIZE_FORMS}");
        let (number, unit) = split_number(text).ok_or_else(bad)?;
        let unit = unit.trim_start().to_ascii_lowercase();
        let (_, factor) = SIZE_UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(bad)?;
        match scaled(number, *factor).ok_or_else(bad)? {
            0 => Err(format!("`{text}` leaves no room at all; {SIZE_FORMS}")),
            bytes => Ok(Self(Some(bytes))),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bytes) = self.0 else {
            return f.write_str("none");
        };
        for (name, factor) in [
            ("TiB", 1u64 << 40),
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
        ] {
            if bytes >= factor && bytes.is_multiple_of(factor) {
                return write!(f, "{}{name}", bytes / factor);
            }
        }
        write!(f, "{bytes}")
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if is_none(text) {
            return Ok(Self(None));
        }
        let bad = || format!("`{text}` is not a time; {SPAN_FORMS}");
        let mut rest = text.trim();
        let mut total_ms = 0u64;
        if rest.is_empty() {
            return Err(bad());
        }
        while !rest.is_empty() {
            let (number, tail) = split_number(rest).ok_or_else(bad)?;
            let unit_len = tail
                .find(|c: char| !c.is_ascii_alphabetic())
                .unwrap_or(tail.len());
            let unit = tail[..unit_len].to_ascii_lowercase();
            if unit.is_empty() {
                return Err(format!("`{text}` has no unit; {SPAN_FORMS}"));
            }
            let (_, factor) = SPAN_UNITS
                .iter()
                .find(|(name, _)| *name == unit)
                .ok_or_else(bad)?;
            let part = scaled(number, *factor).ok_or_else(bad)?;
            total_ms = total_ms.checked_add(part).ok_or_else(bad)?;
            rest = &tail[unit_len..];
        }
        match total_ms {
            0 => Err(format!("`{text}` leaves no time to run; {SPAN_FORMS}")),
            ms if ms > MAX_SPAN_MS => Err(format!(
                "`{text}` is longer than the longest time, 30d; use `none` for no limit"
            )),
            ms => Ok(Self(Some(ms))),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(ms) = self.0 else {
            return f.write_str("none");
        };
        for (name, factor) in [
            ("d", 86_400_000u64),
            ("h", 3_600_000),
            ("m", 60_000),
            ("s", 1_000),
        ] {
            // A unit above seconds needs exactly one or at least ten: 1m and 10m, but 120s instead
            // of 2m.
            if ms.is_multiple_of(factor) && (ms / factor >= 10 || factor == 1_000 || ms == factor) {
                return write!(f, "{}{name}", ms / factor);
            }
        }
        write!(f, "{ms}ms")
    }
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if is_none(text) {
            return Ok(Self(None));
        }
        let bad = || format!("`{text}` is not a number of CPUs; {CPUS_FORMS}");
        let (number, "") = split_number(text.trim()).ok_or_else(bad)? else {
            return Err(bad());
        };
        match scaled(number, 1_000).ok_or_else(bad)? {
            millis @ 10..=4_096_000 => Ok(Self(Some(millis as u32))),
            _ => Err(format!(
                "`{text}` is not between 0.01 and 4096 CPUs; {CPUS_FORMS}"
            )),
        }
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("none"),
            Some(millis) if millis.is_multiple_of(1000) => write!(f, "{}", millis / 1000),
            Some(millis) => {
                let text = format!("{}.{:03}", millis / 1000, millis % 1000);
                f.write_str(text.trim_end_matches('0'))
            }
        }
    }
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if is_none(text) {
            return Ok(Self(None));
        }
        match text.trim().parse::<u32>() {
            Ok(0) => Err(format!("`{text}` allows nothing at all; {COUNT_FORMS}")),
            Ok(number) => Ok(Self(Some(number))),
            Err(_) => Err(format!("`{text}` is not a count; {COUNT_FORMS}")),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("none"),
            Some(number) => write!(f, "{number}"),
        }
    }
}

/// Returns a size for people, such as `1.5 MiB`.
pub fn human_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" {
                format!("{bytes} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// Returns a time in microseconds for people, such as `1.5 ms`.
pub fn human_us(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        1_000_000..120_000_000 => format!("{:.1} s", us as f64 / 1e6),
        _ => format!("{}m{:02}s", us / 60_000_000, us / 1_000_000 % 60),
    }
}

fn is_none(text: &str) -> bool {
    text.trim().eq_ignore_ascii_case("none")
}

/// Splits `12.5GiB` into `12.5` and `GiB`.
fn split_number(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    if end == 0 {
        None
    } else {
        Some(text.split_at(end))
    }
}

/// Returns `number * factor` in whole units, exact for up to nine decimals; `None` if malformed or
/// too large.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 9 || fraction.contains('.') {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let part: u64 = fraction.parse().ok()?;
    let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let total =
        u128::from(whole) * u128::from(factor) + u128::from(part) * u128::from(factor) / scale;
    u64::try_from(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_in_every_documented_form() {
        for (text, bytes) in [
            ("512MiB", 512 << 20),
            ("1GiB", 1 << 30),
            ("64k", 64 << 10),
            ("1500000", 1_500_000),
            ("1.5GiB", 3 << 29),
            ("2 MB", 2_000_000),
            ("1t", 1 << 40),
        ] {
            assert_eq!(text.parse::<Size>(), Ok(Size(Some(bytes))), "{text}");
        }
        assert_eq!("none".parse::<Size>(), Ok(Size(None)));
    }

    #[test]
    fn nonsense_names_the_accepted_forms() {
        for text in [
            "",
            "lots",
            "5 parsecs",
            "-1",
            "1..2GiB",
            "0",
            "99999999999999999999",
            "1e9",
            "0x10",
        ] {
            let error = text.parse::<Size>().unwrap_err();
            assert!(error.contains("512MiB"), "{text}: {error}");
        }
        for text in [
            "",
            "300",
            "5 minutes later",
            "-1s",
            "0s",
            "31d",
            "1h30",
            "s",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["", "0", "half", "1/2", "5000", "1 CPU"] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
        for text in ["", "0", "-1", "1.5", "4294967296"] {
            assert!(text.parse::<Count>().is_err(), "{text}");
        }
    }

    #[test]
    fn spans_parse_and_print_back() {
        for (text, ms) in [
            ("300s", 300_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("500ms", 500),
            ("1h30m", 5_400_000),
            ("1.5s", 1500),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span, Span(Some(ms)), "{text}");
            assert_eq!(span.to_string().parse(), Ok(span), "{text}");
        }
        assert_eq!(Span(Some(300_000)).to_string(), "300s");
    }

    #[test]
    fn printed_amounts_parse_back() {
        for size in [1, 1023, 1024, 1025, 512 << 20, u64::MAX] {
            let size = Size(Some(size));
            assert_eq!(size.to_string().parse(), Ok(size));
        }
        for millis in [10, 500, 1000, 1250, 4_096_000] {
            let cpus = Cpus(Some(millis));
            assert_eq!(cpus.to_string().parse(), Ok(cpus));
        }
    }
}
