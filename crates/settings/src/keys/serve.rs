//! The server of `serve`: what it offers to those who send it tasks, and how it tells what happens.

use super::access::{Access, one, show_many};
use super::{DefaultValue, Key};
use crate::project_rule::ProjectRule::UserOnly;
use crate::{LogFormat, LogLevel, sources};

pub(super) const KEYS: &[Key] = &[
    // Which directories others may work on is never a project's to say.
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
];
