//! Limits of a sandbox. `docs/guides/limits.md` has the reasons for the defaults.

use super::access::{Access, list, one, show_one};
use super::{DefaultValue, Key};
use crate::project_rule::ProjectRule::{Harmless, TightensOnly};
use crate::project_rule::{
    fewer_connections, fewer_open_files, fewer_pids, less_cpu, less_disk, less_memory,
    less_of_one_file, less_time, less_traffic, slower_traffic,
};
use crate::values::{parse_limit, parse_open_files};

pub(super) const KEYS: &[Key] = &[
    Key::new(
        "memory",
        "memory of all processes together",
        TightensOnly(less_memory),
        one!(memory, str::parse),
    )
    .variable("GLOVEBOX_MEMORY")
    .flags(&["memory"])
    .default(DefaultValue::Words(
        "half of the machine's, at least `\"2GiB\"`",
    ))
    .for_phases(),
    Key::new(
        "cpus",
        "CPU time per second, in processors; `none` for all of them",
        TightensOnly(less_cpu),
        one!(cpus, str::parse),
    )
    .variable("GLOVEBOX_CPUS")
    .flags(&["cpus"])
    .default(DefaultValue::Text("none"))
    .for_phases(),
    Key::new(
        "pids",
        "processes and threads",
        TightensOnly(fewer_pids),
        one!(pids, str::parse),
    )
    .variable("GLOVEBOX_PIDS")
    .flags(&["pids"])
    .default(DefaultValue::Plain("4096"))
    .for_phases(),
    Key::new(
        "disk",
        "bytes written, all files together",
        TightensOnly(less_disk),
        one!(disk, str::parse),
    )
    .variable("GLOVEBOX_DISK")
    .flags(&["disk"])
    .default(DefaultValue::Text("10GiB"))
    .for_phases(),
    Key::new(
        "file_size",
        "size of one file",
        TightensOnly(less_of_one_file),
        one!(file_size, str::parse),
    )
    .variable("GLOVEBOX_FILE_SIZE")
    .flags(&["file-size"])
    .default(DefaultValue::Text("none"))
    .for_phases(),
    Key::new(
        "open_files",
        "open files of one process; `none`: 16384, of which programs start with 4096",
        TightensOnly(fewer_open_files),
        one!(open_files, parse_open_files),
    )
    .variable("GLOVEBOX_OPEN_FILES")
    .flags(&["open-files"])
    .default(DefaultValue::Text("none"))
    .for_phases(),
    Key::new(
        "net_bytes",
        "with `net = \"egress\"`: bytes to and from the network, both together",
        TightensOnly(less_traffic),
        one!(net_bytes, str::parse),
    )
    .variable("GLOVEBOX_NET_BYTES")
    .flags(&["net-bytes"])
    .default(DefaultValue::Text("none"))
    .for_phases(),
    Key::new(
        "net_connections",
        "with `net = \"egress\"`: connections at once; without a limit more than 1024 wait",
        TightensOnly(fewer_connections),
        one!(net_connections, str::parse),
    )
    .variable("GLOVEBOX_NET_CONNECTIONS")
    .flags(&["net-connections"])
    .default(DefaultValue::Text("none"))
    .for_phases(),
    Key::new(
        "net_rate",
        "with `net = \"egress\"`: bytes per second to and from the network",
        TightensOnly(slower_traffic),
        one!(net_rate, str::parse),
    )
    .variable("GLOVEBOX_NET_RATE")
    .flags(&["net-rate"])
    .default(DefaultValue::Text("none"))
    .for_phases(),
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
    .default(DefaultValue::Text("none")),
    // A sandbox is refused where the limit does not hold; nothing is given.
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
