//! Limits of a sandbox as settings: one value each with its origin, written in its unit.
//!
//! [`glovebox_spec::LimitKind`] lists the limits and their units; [`crate::keys`] has their
//! descriptions for users. The lifetime of a sandbox is not here: it is the setting `timeout`, for
//! which commands have their own defaults.

use crate::units::{Count, Cpus, Size, Span};
use crate::{Origin, SourcedValue, defaults};
use glovebox_spec::OPEN_FILES;
use glovebox_spec::{LimitKind, LimitUnit, Limits};

/// Least and most open files of one process: a shell with a pipe needs ten, and the kernel permits
/// at most a million (fs.nr_open).
const OPEN_FILES_RANGE: std::ops::RangeInclusive<u64> = 16..=1 << 20;

/// Value and origin of every limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitSettings([SourcedValue<Option<u64>>; LimitKind::ALL.len()]);

impl Default for LimitSettings {
    fn default() -> Self {
        Self(LimitKind::ALL.map(|kind| SourcedValue::default(defaults::limit(kind))))
    }
}

impl LimitSettings {
    /// Returns a limit in its own unit; a value of `None` is no limit.
    pub const fn get(&self, kind: LimitKind) -> &SourcedValue<Option<u64>> {
        &self.0[kind as usize]
    }

    /// Returns the value without its origin.
    pub const fn value(&self, kind: LimitKind) -> Option<u64> {
        self.get(kind).value
    }

    /// Returns the value in the form that users write.
    pub fn text(&self, kind: LimitKind) -> String {
        limit_text(kind, self.value(kind))
    }

    /// Sets a limit.
    pub(crate) fn set(&mut self, kind: LimitKind, value: Option<u64>, origin: &Origin) {
        self.0[kind as usize].set(value, origin);
    }

    /// Returns all limits for a sandbox with a lifetime of `wall_ms` milliseconds.
    pub fn to_limits(&self, wall_ms: Option<u64>) -> Limits {
        let mut limits = Limits::default();
        for kind in LimitKind::ALL {
            limits.set_value(kind, self.value(kind));
        }
        limits.wall_ms = wall_ms;
        limits
    }
}

/// Returns the value that holds when the setting is `none`, for limits that always have one.
pub(crate) const fn in_force_without(kind: LimitKind) -> Option<u64> {
    match kind {
        LimitKind::OpenFiles => Some(OPEN_FILES as u64),
        _ => None,
    }
}

/// Parses the value of a limit.
///
/// # Errors
/// A sentence that names every accepted form.
pub fn parse_limit_value(kind: LimitKind, text: &str) -> Result<Option<u64>, String> {
    let value = match kind.unit() {
        LimitUnit::Bytes | LimitUnit::BytesPerSecond => text.parse::<Size>()?.0,
        LimitUnit::CpuMillis => text.parse::<Cpus>()?.0.map(u64::from),
        LimitUnit::Count => text.parse::<Count>()?.0.map(u64::from),
        LimitUnit::Milliseconds => text.parse::<Span>()?.0,
    };
    match (kind, value) {
        (LimitKind::OpenFiles, Some(number)) if !OPEN_FILES_RANGE.contains(&number) => {
            Err(format!(
                "`{text}` open files are too few or too many; write a number from {} to {}, or `none` for {OPEN_FILES}",
                OPEN_FILES_RANGE.start(),
                OPEN_FILES_RANGE.end()
            ))
        }
        _ => Ok(value),
    }
}

/// Returns the value of a limit in the form that users write.
pub fn limit_text(kind: LimitKind, value: Option<u64>) -> String {
    // Stored values fit: they were parsed from, or are, a field of that width.
    let small = || value.map(|value| u32::try_from(value).unwrap_or(u32::MAX));
    match kind.unit() {
        LimitUnit::Bytes | LimitUnit::BytesPerSecond => Size(value).to_string(),
        LimitUnit::CpuMillis => Cpus(small()).to_string(),
        LimitUnit::Count => Count(small()).to_string(),
        LimitUnit::Milliseconds => Span(value).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_of_a_limit_is_written_as_its_unit_is() {
        let settings = LimitSettings::default();
        for kind in LimitKind::ALL {
            let text = settings.text(kind);
            assert_eq!(parse_limit_value(kind, &text), Ok(settings.value(kind)));
        }
    }

    #[test]
    fn the_limits_of_a_sandbox_are_those_of_the_settings() {
        let mut settings = LimitSettings::default();
        for (at, kind) in LimitKind::ALL.into_iter().enumerate() {
            settings.set(kind, Some(at as u64 + 1), &Origin::Default);
        }
        let limits = settings.to_limits(None);
        for (at, kind) in LimitKind::ALL.into_iter().enumerate() {
            let of_sandbox = (kind != LimitKind::Wall).then_some(at as u64 + 1);
            assert_eq!(kind.value(&limits), of_sandbox, "{kind}");
        }
        assert_eq!(settings.to_limits(Some(7)).wall_ms, Some(7));
    }
}
