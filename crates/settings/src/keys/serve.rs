//! Keys of the server that `serve` starts: sources for tasks, log, quotas.

use super::access::{Access, one, show_many};
use super::{DefaultValue, Key};
use crate::project_rule::ProjectRule::UserOnly;
use crate::{LogFormat, LogLevel, sources};

pub(super) const KEYS: &[Key] = &[
    // A project must not decide which directories other users may work on.
    Key::new(
        "serve.sources",
        "a table of directories that tasks of `serve` may name, `NAME = \"DIR\"`; `\"DIR:ro\"` takes no changes back \
         ([sources](../guides/server.md#workspaces))",
        UserOnly,
        Access {
            set: sources::add,
            show: |settings| show_many(&settings.sources, ToString::to_string),
        },
    )
    .flags(&["serve source"])
    .default(DefaultValue::Words("none")),
    Key::new(
        "serve.log_format",
        "the form of the server's log on standard error: `text` or `json` ([log](../guides/server.md#log))",
        UserOnly,
        one!(
            serve.log_format,
            str::parse,
            |form: &LogFormat| form.as_str().to_owned()
        ),
    )
    .variable("GLOVEBOX_LOG_FORMAT")
    .flags(&["serve log-format"])
    .default(DefaultValue::Text("text")),
    Key::new(
        "serve.log_level",
        "how much of it: `error`, `warn`, `info` or `debug`",
        UserOnly,
        one!(
            serve.log_level,
            str::parse,
            |level: &LogLevel| level.as_str().to_owned()
        ),
    )
    .variable("GLOVEBOX_LOG_LEVEL")
    .flags(&["serve log-level"])
    .default(DefaultValue::Text("info")),
    Key::new(
        "serve.max_memory",
        "memory of all sandboxes of `serve` that run, by their limits, together ([quotas](../guides/server.md#quotas))",
        UserOnly,
        one!(serve.quota.memory, str::parse),
    )
    .flags(&["serve max-memory"])
    .default(DefaultValue::Text("none")),
    Key::new(
        "serve.max_memory_per_user",
        "the same of one user",
        UserOnly,
        one!(serve.quota_per_user.memory, str::parse),
    )
    .flags(&["serve max-memory-per-user"])
    .default(DefaultValue::Text("none")),
    Key::new(
        "serve.max_cpus",
        "CPU time per second of all sandboxes of `serve` that run, by their limits, together",
        UserOnly,
        one!(serve.quota.cpus, str::parse),
    )
    .flags(&["serve max-cpus"])
    .default(DefaultValue::Text("none")),
    Key::new(
        "serve.max_cpus_per_user",
        "the same of one user",
        UserOnly,
        one!(serve.quota_per_user.cpus, str::parse),
    )
    .flags(&["serve max-cpus-per-user"])
    .default(DefaultValue::Text("none")),
    Key::new(
        "serve.max_disk",
        "disk of all sandboxes of `serve` that run, by their limits, together; of stopped ones, what their files take",
        UserOnly,
        one!(serve.quota.disk, str::parse),
    )
    .flags(&["serve max-disk"])
    .default(DefaultValue::Text("none")),
    Key::new(
        "serve.max_disk_per_user",
        "the same of one user",
        UserOnly,
        one!(serve.quota_per_user.disk, str::parse),
    )
    .flags(&["serve max-disk-per-user"])
    .default(DefaultValue::Text("none")),
];
