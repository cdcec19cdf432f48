//! Keys of a sandbox's backend and content.

use super::access::{Access, list, one, show_one};
use super::{DefaultValue, Key};
use crate::Origin;
use crate::project_rule::ProjectRule::{Harmless, NativeOnly, NeedsTrust, TightensOnly};
use crate::project_rule::{
    less_start_time, no_further_history, no_kept_caches, no_network, no_new_env_from_host,
    no_other_rootfs, no_toolchains, same_or_free_backend, same_or_narrower_workspace,
};
use crate::raw::{PathContext, RawValue, switch};
use crate::values::{self, EnvArg, GrantArg};
use glovebox_egress::{Secret, SecretError, SecretSource};
use glovebox_sandbox::{Backend, ProjectChoice};
use glovebox_spec::RootFs;
use std::ffi::OsStr;

pub(super) const KEYS: &[Key] = &[
    Key::new(
        "backend",
        "what stands behind a sandbox: `native`, `host` (no isolation), `command`, or another one that the help of \
         `--backend` names. In your own settings also an order, such as `[\"native\", \"confined\"]`: the first that \
         starts here is taken, and each run says so when it was not the first",
        TightensOnly(same_or_free_backend),
        Access {
            set: |settings, raw, _, origin| {
                let order: Vec<_> = raw
                    .many()
                    .into_iter()
                    .map(values::parse_backend)
                    .collect::<Result<_, _>>()?;
                let Some(first) = order.first().copied() else {
                    return Err("names no backend".to_owned());
                };
                if matches!(origin, Origin::ProjectFile(_))
                    && (order.len() > 1 || first.project_choice() == ProjectChoice::Never)
                {
                    return Err(format!(
                        "only the user's own settings may take `{first}` or several backends"
                    ));
                }
                settings.backend.set(first, origin);
                settings.backend_order = order;
                Ok(())
            },
            show: |settings| {
                let words = |first: &Backend| match settings.backend_order.as_slice() {
                    order @ [_, _, ..] if order.contains(first) => {
                        let names: Vec<_> = order.iter().map(|backend| backend.as_str()).collect();
                        names.join(",")
                    }
                    _ => first.as_str().to_owned(),
                };
                show_one(&settings.backend, words)
            },
        },
    )
    .variable("GLOVEBOX_BACKEND")
    .flags(&["backend"])
    .default(DefaultValue::Text(Backend::NATIVE.as_str())),
    Key::new(
        "carrier",
        "with `backend = \"command\"`: the command whose standard input and output lead to the other side, a string or \
         a list of words; with `backend = \"sprites\"`: `websocket`, or `cli` for the service's own program `sprite`",
        NeedsTrust("runs a command on your machine"),
        Access {
            set: |settings, raw, _, origin| {
                let words = match raw {
                    RawValue::One(text) => values::split_words(text)?,
                    RawValue::Many(words) => words.clone(),
                    RawValue::Table(..) => Vec::new(),
                };
                settings.carrier.set(words, origin);
                Ok(())
            },
            show: |settings| {
                if settings.carrier.value.is_empty() {
                    return Vec::new();
                }
                show_one(&settings.carrier, |words| words.join(" "))
            },
        },
    )
    .variable("GLOVEBOX_CARRIER")
    .flags(&["carrier"])
    .default(DefaultValue::Words("none")),
    Key::new(
        "start_timeout",
        "how long a sandbox may take to come up; a carrier connects in that time and sends the guest",
        TightensOnly(less_start_time),
        one!(start_timeout, values::parse_start_timeout),
    )
    .variable("GLOVEBOX_START_TIMEOUT")
    .flags(&["start-timeout"])
    .default(DefaultValue::Text("30s")),
    Key::new(
        "guest_dir",
        "with `backend = \"command\"`: the directory on the other side where the guest is kept, an absolute path",
        NeedsTrust("keeps a program in a place of its choice on the other side"),
        Access {
            set: |settings, raw, _, origin| {
                let dir = values::parse_guest_dir(raw.one()?)?;
                settings.guest_dir.set(Some(dir), origin);
                Ok(())
            },
            show: |settings| match &settings.guest_dir.value {
                Some(path) => vec![(path.display().to_string(), &settings.guest_dir.origin)],
                None => Vec::new(),
            },
        },
    )
    .variable("GLOVEBOX_GUEST_DIR")
    .flags(&["guest-dir"])
    .default(DefaultValue::Words("a cache directory of the login's")),
    Key::new(
        "rootfs",
        "what `/` shows: `host` (programs only), `host-all` (weaker) or `dir:PATH`",
        TightensOnly(no_other_rootfs),
        Access {
            set: |settings, raw, place, origin| {
                let rootfs = match values::parse_rootfs(raw.one()?)? {
                    RootFs::Dir(path) => RootFs::Dir(place.path(&path.to_string_lossy())?),
                    other => other,
                };
                settings.rootfs.set(rootfs, origin);
                Ok(())
            },
            show: |settings| show_one(&settings.rootfs, ToString::to_string),
        },
    )
    .variable("GLOVEBOX_ROOTFS")
    .flags(&["rootfs"])
    .default(DefaultValue::Text("host"))
    .for_phases(),
    Key::new(
        "net",
        "the network: `none`, `egress` (listed hosts) or `host` (all of this machine's)",
        TightensOnly(no_network),
        one!(net, values::parse_net, |net| values::net_word(*net)
            .to_owned()),
    )
    .variable("GLOVEBOX_NET")
    .flags(&["net"])
    .default(DefaultValue::Text("none"))
    .for_phases(),
    Key::new(
        "allow",
        "with `net = \"egress\"`: what may be reached, presets and hosts ([network](../guides/network.md))",
        NeedsTrust("opens your network to hosts of its choice"),
        list!(allow, many, |text, _| values::parse_reach(text), Clone::clone),
    )
    .flags(&["allow"])
    .for_phases(),
    Key::new(
        "deny",
        "what of that stays closed",
        Harmless,
        list!(deny, many, |text, _| values::parse_reach(text), Clone::clone),
    )
    .flags(&["deny"])
    .for_phases(),
    Key::new(
        "secrets",
        "what is filled in on the way to listed hosts, `NAME=env:VARIABLE@HOST` or `NAME=file:PATH@HOST` \
         ([secrets](../guides/secrets.md))",
        NeedsTrust("reads a secret of yours and sends it to hosts of its choice"),
        list!(secrets, patterns, secret, ToString::to_string),
    )
    .flags(&["secret"]),
    Key::new(
        "grants",
        "host paths that are shown, `\"PATH\"` or `\"PATH:/TARGET\"`, read-only",
        NeedsTrust("shows further files of your machine"),
        list!(grants, many, grant, ToString::to_string),
    )
    .flags(&["grant"])
    .for_phases(),
    Key::new(
        "toolchains",
        "whether language toolchains in your home are shown",
        TightensOnly(no_toolchains),
        one!(toolchains, switch),
    )
    .variable("GLOVEBOX_TOOLCHAINS")
    .flags(&["no-toolchains"])
    .default(DefaultValue::Plain("true"))
    .for_phases(),
    Key::new(
        "cache",
        "`true`: package caches and cargo's `target` are kept for the next sandbox of the project \
         ([package caches](../guides/caches.md)). A project's own file may turn it off, and on with your consent",
        TightensOnly(no_kept_caches),
        one!(cache, switch),
    )
    .variable("GLOVEBOX_CACHE")
    .flags(&["cache"])
    .default(DefaultValue::Plain("false")),
    Key::new(
        "env",
        "variables of commands: `\"NAME=VALUE\"`, or `\"NAME\"` for the value you have",
        NativeOnly(
            no_new_env_from_host,
            "sets variables of programs that run outside a native sandbox",
        ),
        // Values may be secrets: only names are shown.
        list!(
            env,
            many,
            |text, _| EnvArg::parse(OsStr::new(text)),
            |var: &EnvArg| {
                let name = var.name.to_string_lossy();
                match var.value {
                    Some(_) => format!("{name}=..."),
                    None => name.into_owned(),
                }
            }
        ),
    )
    .flags(&["env"])
    .for_phases(),
    Key::new(
        "workspace",
        "the project inside: `overlay` (changes stay in the sandbox), `read-only`, `copy`, `live` (no wall) or `none`",
        TightensOnly(same_or_narrower_workspace),
        Access {
            set: |settings, raw, _, origin| {
                let mode = values::parse_workspace(raw.one()?)?;
                settings.workspace.set(Some(mode), origin);
                Ok(())
            },
            show: |settings| {
                show_one(&settings.workspace, |mode| {
                    mode.map_or("overlay; none with `command`", |mode| mode.as_str())
                        .to_owned()
                })
            },
        },
    )
    .variable("GLOVEBOX_WORKSPACE")
    .flags(&["workspace"])
    .default(DefaultValue::Words("`\"overlay\"`; none with `command`"))
    .for_phases(),
    Key::new(
        "git",
        "of the repository, in a copy on another machine: `head` (the commit that is checked out, without history) or \
         `full` (all local branches and tags)",
        TightensOnly(no_further_history),
        one!(git, values::parse_git, |git| git.as_str().to_owned()),
    )
    .variable("GLOVEBOX_GIT")
    .flags(&["git"])
    .default(DefaultValue::Text("head")),
];

fn secret(text: &str, place: PathContext<'_>) -> Result<Secret, String> {
    let mut secret: Secret = text
        .parse()
        .map_err(|error: SecretError| error.to_string())?;
    if let SecretSource::File(path) = &mut secret.source {
        *path = place.path(&path.to_string_lossy())?;
    }
    Ok(secret)
}

fn grant(text: &str, place: PathContext<'_>) -> Result<GrantArg, String> {
    let grant: GrantArg = text.parse()?;
    let source = place.path(&grant.source.to_string_lossy())?;
    Ok(GrantArg { source, ..grant })
}
