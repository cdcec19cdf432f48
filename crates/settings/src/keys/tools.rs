//! Keys of toolsets, MCP servers, workflows and rules.

use super::access::{Access, show_many, show_one};
use super::{DefaultValue, Key};
use crate::McpServer;
use crate::project_rule::ProjectRule::{Harmless, NeedsTrust, TightensOnly};
use crate::project_rule::{same_or_narrower_toolset, same_or_narrower_toolsets};
use crate::raw::RawValue;
use crate::servers;
use glovebox_tools::policy::Effect;

pub(super) const KEYS: &[Key] = &[
    Key::new(
        "mcp",
        "a table for each server, `[mcp.NAME]`: see [tools of MCP servers](../guides/mcp-servers.md)",
        NeedsTrust("starts a server of its own choice, or sends what it is given there"),
        Access {
            set: |settings, raw, _, origin| servers::add(&mut settings.servers, raw, origin),
            show: |settings| show_many(&settings.servers, McpServer::shown),
        },
    )
    .default(DefaultValue::Words("none")),
    Key::new(
        "toolsets",
        "a table of names, each with a list of tools, after `\"read-only\"` if nothing may be written; or with a table \
         of `tools` and the network of its sandboxes (`net`, `allow`, `deny`, `net_bytes`, `net_connections`, `net_rate`)",
        TightensOnly(same_or_narrower_toolsets),
        Access {
            set: |settings, raw, _, origin| match raw {
                RawValue::Table(name, fields) => settings.tools.define_table(name, fields, origin),
                list => settings.tools.define(&list.patterns(), origin),
            },
            show: |settings| show_many(&settings.tools.own, ToString::to_string),
        },
    )
    .default(DefaultValue::Words("none")),
    Key::new(
        "toolset",
        "which tools agents have",
        TightensOnly(same_or_narrower_toolset),
        Access {
            set: |settings, raw, _, origin| settings.tools.choose(raw.one()?, origin),
            show: |settings| show_one(&settings.tools.toolset, ToString::to_string),
        },
    )
    .variable("GLOVEBOX_TOOLSET")
    .flags(&["mcp toolset", "call toolset", "agent phase"])
    .default(DefaultValue::Text("implement")),
    // A definition has no effect by itself. Its phases are judged when the workflow runs.
    Key::new(
        "workflow",
        "tables `[[workflow]]`, see below; `agent --workflow NAME` runs one",
        Harmless,
        Access {
            set: |settings, raw, _, origin| settings.add_workflow(&raw.patterns(), origin),
            show: |settings| show_many(&settings.workflows, ToString::to_string),
        },
    )
    .default(DefaultValue::Words("none")),
    Key::new(
        "policy.allow",
        "rules for calls that are made although a broader rule asks about them",
        NeedsTrust("lets calls through that your own rules may ask about"),
        Access {
            set: |settings, raw, _, origin| {
                settings.tools.add(Effect::Allow, &raw.patterns(), origin)
            },
            show: |settings| settings.tools.shown(Effect::Allow),
        },
    ),
    Key::new(
        "policy.ask",
        "rules for calls that need somebody's word",
        Harmless,
        Access {
            set: |settings, raw, _, origin| {
                settings.tools.add(Effect::Ask, &raw.patterns(), origin)
            },
            show: |settings| settings.tools.shown(Effect::Ask),
        },
    ),
    Key::new(
        "policy.deny",
        "rules for calls that are not made",
        Harmless,
        Access {
            set: |settings, raw, _, origin| {
                settings.tools.add(Effect::Deny, &raw.patterns(), origin)
            },
            show: |settings| settings.tools.shown(Effect::Deny),
        },
    ),
];
