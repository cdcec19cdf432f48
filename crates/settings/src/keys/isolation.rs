//! Keys of a sandbox's construction, and of the number of sandboxes.

use super::access::{Access, one};
use super::{DefaultValue, Key};
use crate::project_rule::ProjectRule::{TightensOnly, UserOnly};
use crate::project_rule::{less_proc, no_more_ids, no_nested_namespaces, no_other_layers};
use crate::raw::switch;
use crate::values;

pub(super) const KEYS: &[Key] = &[
    Key::new(
        "layers",
        "where written data lives: `disk` or `memory`",
        TightensOnly(no_other_layers),
        one!(layers, values::parse_layers, |layers| values::layers_word(
            *layers
        )
        .to_owned()),
    )
    .variable("GLOVEBOX_LAYERS")
    .flags(&["layers"])
    .default(DefaultValue::Text("disk")),
    Key::new(
        "ids",
        "user ids inside: `auto`, `single` or `range`",
        TightensOnly(no_more_ids),
        one!(ids, values::parse_ids, |ids| values::ids_word(*ids)
            .to_owned()),
    )
    .variable("GLOVEBOX_IDS")
    .flags(&["ids"])
    .default(DefaultValue::Text("auto")),
    Key::new(
        "proc",
        "how much of `/proc` is shown: `masked`, `pids` or `none`",
        TightensOnly(less_proc),
        one!(proc, values::parse_proc, |proc| values::proc_word(*proc)
            .to_owned()),
    )
    .variable("GLOVEBOX_PROC")
    .flags(&["proc"])
    .default(DefaultValue::Text("masked"))
    .for_phases(),
    Key::new(
        "nested",
        "`true`: commands may make namespaces ([agents inside](../guides/agent-inside.md)); weaker",
        TightensOnly(no_nested_namespaces),
        one!(nested, switch),
    )
    .variable("GLOVEBOX_NESTED")
    .flags(&["nested"])
    .default(DefaultValue::Plain("false")),
    Key::new(
        "max_sandboxes",
        "sandboxes that may exist at once",
        UserOnly,
        one!(max_sandboxes, str::parse),
    )
    .variable("GLOVEBOX_MAX_SANDBOXES")
    .default(DefaultValue::Plain("64")),
    Key::new(
        "state",
        "where sandboxes, sessions and caches are kept",
        UserOnly,
        Access {
            set: |settings, raw, place, origin| {
                settings.state.set(Some(place.path(raw.one()?)?), origin);
                Ok(())
            },
            show: |settings| match &settings.state.value {
                Some(path) => vec![(path.display().to_string(), &settings.state.origin)],
                None => Vec::new(),
            },
        },
    )
    .variable("GLOVEBOX_STATE")
    .default(DefaultValue::Words(
        "`$XDG_STATE_HOME/glovebox`, usually `~/.local/state/glovebox`",
    )),
];
