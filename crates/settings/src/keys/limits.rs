//! Keys of a sandbox's limits. `docs/guides/limits.md` has the reasons for the defaults.

use super::access::{Access, list, show_one};
use super::{DefaultValue, Key};
use crate::limits::{limit_text, parse_limit_value};
use crate::project_rule::ProjectRule::{Harmless, TightensOnly};
use crate::project_rule::{less_time, raised_limit};
use crate::values::parse_limit;
use glovebox_spec::LimitKind;

/// Row of a limit: variable, flag, default and meaning. Name, unit and the rule for projects come
/// from its kind.
macro_rules! limit {
    ($kind:ident, $variable:literal, $flag:literal, $default:expr, $meaning:literal) => {
        Key::new(
            LimitKind::$kind.setting(),
            $meaning,
            TightensOnly(|new, user| raised_limit(LimitKind::$kind, new, user)),
            Access {
                set: |settings, raw, _, origin| {
                    let value = parse_limit_value(LimitKind::$kind, raw.one()?)?;
                    settings.limits.set(LimitKind::$kind, value, origin);
                    Ok(())
                },
                show: |settings| {
                    show_one(settings.limits.get(LimitKind::$kind), |value| {
                        limit_text(LimitKind::$kind, *value)
                    })
                },
            },
        )
        .limit(LimitKind::$kind)
        .variable($variable)
        .flags(&[$flag])
        .default($default)
        .for_phases()
    };
}

/// Default of limits that are off.
const NONE: DefaultValue = DefaultValue::Text("none");

pub(super) const KEYS: &[Key] = &[
    limit!(
        Memory,
        "GLOVEBOX_MEMORY",
        "memory",
        DefaultValue::Words("half of the machine's, at least `\"2GiB\"`"),
        "memory of all processes together"
    ),
    limit!(
        Cpu,
        "GLOVEBOX_CPUS",
        "cpus",
        NONE,
        "CPU time per second, in processors; `none` for all of them"
    ),
    limit!(
        CpuTime,
        "GLOVEBOX_CPU_TIME",
        "cpu-time",
        NONE,
        "CPU time of all processes together, until the sandbox is ended"
    ),
    limit!(
        Pids,
        "GLOVEBOX_PIDS",
        "pids",
        DefaultValue::Plain("4096"),
        "processes and threads"
    ),
    limit!(
        Disk,
        "GLOVEBOX_DISK",
        "disk",
        DefaultValue::Text("10GiB"),
        "bytes written, all files together"
    ),
    limit!(
        FileSize,
        "GLOVEBOX_FILE_SIZE",
        "file-size",
        NONE,
        "size of one file"
    ),
    limit!(
        OpenFiles,
        "GLOVEBOX_OPEN_FILES",
        "open-files",
        NONE,
        "open files of one process; `none`: 16384, of which programs start with 4096"
    ),
    limit!(
        NetBytes,
        "GLOVEBOX_NET_BYTES",
        "net-bytes",
        NONE,
        "with network `egress`: bytes to and from it, both together"
    ),
    limit!(
        NetConnections,
        "GLOVEBOX_NET_CONNECTIONS",
        "net-connections",
        NONE,
        "with network `egress`: connections at once; without a limit more than 1024 wait"
    ),
    limit!(
        NetRate,
        "GLOVEBOX_NET_RATE",
        "net-rate",
        NONE,
        "with network `egress`: bytes per second to and from it, such as 1MiB"
    ),
    Key::new(
        "timeout",
        "time until a command, or a named sandbox, is ended",
        TightensOnly(less_time),
        Access {
            set: |settings, raw, _, origin| {
                settings.timeout.set(Some(raw.one()?.parse()?), origin);
                Ok(())
            },
            show: |settings| {
                show_one(&settings.timeout, |span| {
                    span.map_or_else(|| "none".to_owned(), |span| span.to_string())
                })
            },
        },
    )
    .variable("GLOVEBOX_TIMEOUT")
    .flags(&["timeout"])
    .default(NONE),
    // Permitted in a project: it can only cause a refusal where a limit does not hold.
    Key::new(
        "require",
        "limits that the kernel must hold: `approximate` is refused as `absent` is",
        Harmless,
        list!(
            require,
            many,
            |text, _| parse_limit(text),
            ToString::to_string
        ),
    )
    .variable("GLOVEBOX_REQUIRE")
    .flags(&["require"])
    .for_phases(),
];

/// Returns the limits that have a setting of their own with their rows, in the order of
/// [`super::keys`].
pub fn limit_keys() -> impl Iterator<Item = (LimitKind, &'static Key)> {
    super::keys().filter_map(|key| Some((key.limit?, key)))
}

/// Returns the flag that sets a limit, without `--`.
pub fn limit_flag(kind: LimitKind) -> &'static str {
    super::keys()
        .find(|key| key.name == kind.setting())
        .and_then(|key| key.flags.first())
        .map_or(kind.as_str(), |flag| *flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_but_the_time_has_a_setting_of_its_own() {
        for kind in LimitKind::ALL {
            let key = limit_keys().find(|(of, _)| *of == kind);
            if kind == LimitKind::Wall {
                assert!(key.is_none());
                continue;
            }
            let (_, key) = key.unwrap();
            assert_eq!(key.name, kind.setting());
            assert_eq!(limit_flag(kind), key.flags[0]);
        }
    }
}
