//! What `serve` offers to those who send it tasks.

use super::access::{Access, show_many};
use super::{DefaultValue, Key};
use crate::project_rule::ProjectRule::UserOnly;
use crate::sources;

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
];
