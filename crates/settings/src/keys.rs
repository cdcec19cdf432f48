//! Every key of `glovebox.toml`: its name, its variable, and what it needs when a project sets it.
//!
//! [`Key::project`] has no default: a key cannot be added without a decision about projects.

use super::project_rule::{
    ProjectRule, fewer_agent_tokens, fewer_agent_turns, fewer_connections, fewer_pids,
    less_agent_time, less_cpu, less_disk, less_memory, less_of_one_file, less_proc, less_spending,
    less_time, less_traffic, no_kept_caches, no_more_ids, no_nested_namespaces, no_network,
    no_new_env_from_host, no_other_layers, no_other_rootfs, no_reinclusion, no_toolchains,
    not_applied_by_itself, same_or_narrower_toolset, same_or_narrower_toolsets,
    same_or_narrower_workspace, same_or_native_backend, sandboxed_mode, slower_traffic,
};

/// One key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// Its name in `glovebox.toml`.
    pub name: &'static str,
    /// The variable that sets it.
    pub variable: Option<&'static str>,
    /// What it needs in a project's own file.
    pub project: ProjectRule,
}

const fn key(name: &'static str, variable: &'static str, project: ProjectRule) -> Key {
    Key {
        name,
        variable: Some(variable),
        project,
    }
}

const fn list(name: &'static str, project: ProjectRule) -> Key {
    Key {
        name,
        variable: None,
        project,
    }
}

use ProjectRule::{Harmless, NativeOnly, NeedsTrust, TightensOnly, UserOnly};

/// Every key, in the order `config explain` prints them.
pub const KEYS: &[Key] = &[
    key(
        "backend",
        "GLOVEBOX_BACKEND",
        TightensOnly(same_or_native_backend),
    ),
    key(
        "carrier",
        "GLOVEBOX_CARRIER",
        NeedsTrust("runs a command on your machine"),
    ),
    key("rootfs", "GLOVEBOX_ROOTFS", TightensOnly(no_other_rootfs)),
    key("net", "GLOVEBOX_NET", TightensOnly(no_network)),
    list(
        "allow",
        NeedsTrust("opens your network to hosts of its choice"),
    ),
    list("deny", Harmless),
    list(
        "secrets",
        NeedsTrust("reads a secret of yours and sends it to hosts of its choice"),
    ),
    list("grants", NeedsTrust("shows further files of your machine")),
    key(
        "toolchains",
        "GLOVEBOX_TOOLCHAINS",
        TightensOnly(no_toolchains),
    ),
    key("cache", "GLOVEBOX_CACHE", TightensOnly(no_kept_caches)),
    list(
        "env",
        NativeOnly(
            no_new_env_from_host,
            "sets variables of programs that run outside a native sandbox",
        ),
    ),
    key(
        "workspace",
        "GLOVEBOX_WORKSPACE",
        TightensOnly(same_or_narrower_workspace),
    ),
    key(
        "sync.enabled",
        "GLOVEBOX_SYNC_ENABLED",
        TightensOnly(same_or_narrower_workspace),
    ),
    list(
        "sync.push.exclude",
        TightensOnly(|new, user| no_reinclusion(&new.sync.push_exclude, &user.sync.push_exclude)),
    ),
    list(
        "sync.push.include",
        NeedsTrust("shows files that are hidden otherwise"),
    ),
    list(
        "sync.pull.exclude",
        TightensOnly(|new, user| no_reinclusion(&new.sync.pull_exclude, &user.sync.pull_exclude)),
    ),
    list(
        "sync.pull.include",
        NeedsTrust("brings back files that would stay in the sandbox"),
    ),
    key(
        "sync.on_success",
        "GLOVEBOX_SYNC_ON_SUCCESS",
        TightensOnly(not_applied_by_itself),
    ),
    list(
        "mcp",
        NeedsTrust("starts a server of its own choice, or sends what it is given there"),
    ),
    list("toolsets", TightensOnly(same_or_narrower_toolsets)),
    key(
        "toolset",
        "GLOVEBOX_TOOLSET",
        TightensOnly(same_or_narrower_toolset),
    ),
    // A definition does nothing. Its phases are judged when it is run.
    list("workflow", Harmless),
    list(
        "policy.allow",
        NeedsTrust("lets calls through that your own rules may ask about"),
    ),
    list("policy.ask", Harmless),
    list("policy.deny", Harmless),
    key(
        "mode",
        "GLOVEBOX_EXECUTION_MODE",
        TightensOnly(sandboxed_mode),
    ),
    key(
        "agent.model",
        "GLOVEBOX_MODEL",
        NeedsTrust("chooses who reads the project and what that costs"),
    ),
    key(
        "agent.price",
        "GLOVEBOX_PRICE",
        NeedsTrust("says what tokens cost"),
    ),
    key(
        "agent.window",
        "GLOVEBOX_WINDOW",
        NeedsTrust("says how much the model is told, and so what that costs"),
    ),
    // Without them the model would not know what the user forbids.
    key("agent.instructions", "GLOVEBOX_INSTRUCTIONS", UserOnly),
    key(
        "agent.max_turns",
        "GLOVEBOX_MAX_TURNS",
        TightensOnly(fewer_agent_turns),
    ),
    key(
        "agent.max_time",
        "GLOVEBOX_MAX_TIME",
        TightensOnly(less_agent_time),
    ),
    key(
        "agent.max_tokens",
        "GLOVEBOX_MAX_TOKENS",
        TightensOnly(fewer_agent_tokens),
    ),
    key(
        "agent.max_cost",
        "GLOVEBOX_MAX_COST",
        TightensOnly(less_spending),
    ),
    key("memory", "GLOVEBOX_MEMORY", TightensOnly(less_memory)),
    key("cpus", "GLOVEBOX_CPUS", TightensOnly(less_cpu)),
    key("pids", "GLOVEBOX_PIDS", TightensOnly(fewer_pids)),
    key("disk", "GLOVEBOX_DISK", TightensOnly(less_disk)),
    key(
        "file_size",
        "GLOVEBOX_FILE_SIZE",
        TightensOnly(less_of_one_file),
    ),
    key(
        "net_bytes",
        "GLOVEBOX_NET_BYTES",
        TightensOnly(less_traffic),
    ),
    key(
        "net_connections",
        "GLOVEBOX_NET_CONNECTIONS",
        TightensOnly(fewer_connections),
    ),
    key(
        "net_rate",
        "GLOVEBOX_NET_RATE",
        TightensOnly(slower_traffic),
    ),
    key("timeout", "GLOVEBOX_TIMEOUT", TightensOnly(less_time)),
    // A sandbox is refused where the limit does not hold; nothing is given.
    key("require", "GLOVEBOX_REQUIRE", Harmless),
    key("layers", "GLOVEBOX_LAYERS", TightensOnly(no_other_layers)),
    key("ids", "GLOVEBOX_IDS", TightensOnly(no_more_ids)),
    key("proc", "GLOVEBOX_PROC", TightensOnly(less_proc)),
    key(
        "nested",
        "GLOVEBOX_NESTED",
        TightensOnly(no_nested_namespaces),
    ),
    key("max_sandboxes", "GLOVEBOX_MAX_SANDBOXES", UserOnly),
    key("state", "GLOVEBOX_STATE", UserOnly),
];
