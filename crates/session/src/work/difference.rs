//! Compares an existing sandbox with the requested settings.
//!
//! In: its recorded specification and the requested one. Out: each setting that differs, named like
//! its flag. Facts of the machine that the user did not choose (toolchains, default variables) may
//! differ.

use crate::Error;
use crate::spec::ResolvedSpec;
use glovebox_egress::{Rule, Secret};
use glovebox_proto::visible::line_of_text as escape_text;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::{Name, SandboxSpec};
use glovebox_settings::{ids_word, layers_word, limit_flag, limit_text, net_word, proc_word};
use glovebox_spec::{Grant, LimitKind};
use std::path::Path;

/// Setting that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Difference {
    setting: &'static str,
    /// Value of the sandbox.
    has: String,
    /// Requested value.
    asked: String,
}

/// Checks that a running sandbox has the requested settings. `variables` are the names of requested
/// variables.
///
/// # Errors
/// A refusal that names each difference.
pub(super) fn check(
    name: &Name,
    has: &SandboxSpec,
    wanted: &ResolvedSpec,
    variables: &[String],
) -> Result<(), Error> {
    let differences = differences(has, wanted, variables);
    if differences.is_empty() {
        return Ok(());
    }
    let parts: Vec<String> = differences.iter().map(Difference::sentence).collect();
    let fault = Fault::refused(
        Code::AlreadyExists,
        format!(
            "the sandbox `{name}` runs with other settings: {}",
            parts.join("; ")
        ),
    );
    Err(fault
        .remedy(format!(
            "use it as it is with `glovebox exec {name} -- COMMAND`, or bring its changes back with `glovebox pull \
             {name}` and end it with `glovebox kill {name}` first"
        ))
        .into())
}

/// Checks that the files of an ended sandbox belong to the requested project.
///
/// # Errors
/// A refusal that names both projects.
pub(super) fn check_project(
    name: &Name,
    has: &SandboxSpec,
    wanted: &ResolvedSpec,
) -> Result<(), Error> {
    let (has, asked) = (project_of(has), project_of(&wanted.spec));
    if has == asked {
        return Ok(());
    }
    let shown = |path: Option<&Path>| {
        path.map_or_else(
            || "no project".to_owned(),
            |path| escape_text(&path.display().to_string()),
        )
    };
    let fault = Fault::refused(
        Code::AlreadyExists,
        format!(
            "the files of the sandbox `{name}` belong to {}, not to {}",
            shown(has),
            shown(asked)
        ),
    );
    Err(fault
        .remedy("start it from there, or choose another name")
        .into())
}

impl Difference {
    fn sentence(&self) -> String {
        format!(
            "{} is {}, asked for {}",
            self.setting,
            escape_text(&self.has),
            escape_text(&self.asked)
        )
    }
}

fn project_of(spec: &SandboxSpec) -> Option<&Path> {
    spec.jail.workspace.as_deref().or(spec.cwd.as_deref())
}

fn differences(has: &SandboxSpec, wanted: &ResolvedSpec, variables: &[String]) -> Vec<Difference> {
    let asked = &wanted.spec;
    let mut rows = vec![
        ("backend", backend_words(has), backend_words(asked)),
        ("guest-dir", guest_dir_words(has), guest_dir_words(asked)),
        ("project", project_words(has), project_words(asked)),
        (
            "workspace",
            has.jail.workspace_access.to_string(),
            asked.jail.workspace_access.to_string(),
        ),
        (
            "rootfs",
            has.jail.rootfs.to_string(),
            asked.jail.rootfs.to_string(),
        ),
        (
            "net",
            net_word(has.jail.net).to_owned(),
            net_word(asked.jail.net).to_owned(),
        ),
        (
            "allow",
            rule_words(has.egress.allowed()),
            rule_words(asked.egress.allowed()),
        ),
        (
            "deny",
            rule_words(has.egress.denied()),
            rule_words(asked.egress.denied()),
        ),
        (
            "secrets",
            secret_words(&has.secrets),
            secret_words(&asked.secrets),
        ),
        (
            "proc",
            proc_word(has.jail.proc).to_owned(),
            proc_word(asked.jail.proc).to_owned(),
        ),
        (
            "nested",
            has.jail.is_nested.to_string(),
            asked.jail.is_nested.to_string(),
        ),
        (
            "cache",
            has.cache_project.is_some().to_string(),
            asked.cache_project.is_some().to_string(),
        ),
        (
            "layers",
            layers_word(has.jail.layers).to_owned(),
            layers_word(asked.jail.layers).to_owned(),
        ),
        (
            "ids",
            ids_word(has.jail.ids).to_owned(),
            ids_word(asked.jail.ids).to_owned(),
        ),
        ("require", require_words(has), require_words(asked)),
    ];
    rows.extend(LimitKind::ALL.into_iter().map(|kind| {
        let words = |spec: &SandboxSpec| limit_text(kind, kind.value(&spec.jail.limits));
        (limit_flag(kind), words(has), words(asked))
    }));
    let mut found: Vec<Difference> = rows
        .into_iter()
        .filter(|(_, has, asked)| has != asked)
        .map(|(setting, has, asked)| Difference {
            setting,
            has,
            asked,
        })
        .collect();
    found.extend(grant_difference(has, wanted));
    found.extend(
        variables
            .iter()
            .filter_map(|name| variable_difference(has, asked, name)),
    );
    found
}

fn backend_words(spec: &SandboxSpec) -> String {
    let options: Vec<String> = spec.options.values().map(|words| words.join(" ")).collect();
    if options.is_empty() {
        spec.backend.to_string()
    } else {
        format!("{} ({})", spec.backend, options.join(", "))
    }
}

fn guest_dir_words(spec: &SandboxSpec) -> String {
    let dir = spec.guest_dir.as_deref();
    dir.map_or_else(|| "none".to_owned(), |path| path.display().to_string())
}

fn project_words(spec: &SandboxSpec) -> String {
    project_of(spec).map_or_else(|| "none".to_owned(), |path| path.display().to_string())
}

fn require_words(spec: &SandboxSpec) -> String {
    if spec.jail.require.is_empty() {
        return "nothing".to_owned();
    }
    let words: Vec<&str> = spec.jail.require.iter().map(|kind| kind.as_str()).collect();
    words.join(", ")
}

fn secret_words(secrets: &[Secret]) -> String {
    if secrets.is_empty() {
        return "none".to_owned();
    }
    let words: Vec<_> = secrets.iter().map(ToString::to_string).collect();
    words.join(" ")
}

fn rule_words(rules: &[Rule]) -> String {
    if rules.is_empty() {
        return "nothing".to_owned();
    }
    let words: Vec<_> = rules.iter().map(ToString::to_string).collect();
    words.join(", ")
}

/// Returns the difference in grants, if any. Grants of toolchains are ignored, because the user did
/// not request them.
fn grant_difference(has: &SandboxSpec, wanted: &ResolvedSpec) -> Option<Difference> {
    let is_of_toolchain = |grant: &Grant| {
        wanted
            .toolchains
            .iter()
            .any(|toolchain| toolchain.grants.contains(grant))
    };
    let asked = &wanted.spec.jail.grants;
    let missing = asked
        .iter()
        .any(|grant| !is_of_toolchain(grant) && !has.jail.grants.contains(grant));
    let extra = has.jail.grants.iter().any(|grant| !asked.contains(grant));
    let words = |grants: &[Grant]| {
        let words: Vec<String> = grants
            .iter()
            .filter(|grant| !is_of_toolchain(grant))
            .map(|grant| grant.source.display().to_string())
            .collect();
        if words.is_empty() {
            "nothing".to_owned()
        } else {
            words.join(", ")
        }
    };
    (missing || extra).then(|| Difference {
        setting: "grant",
        has: words(&has.jail.grants),
        asked: words(asked),
    })
}

/// Returns the difference in one variable, if any. Its values are not shown, because they may be
/// secret.
fn variable_difference(has: &SandboxSpec, asked: &SandboxSpec, name: &str) -> Option<Difference> {
    let value = |spec: &SandboxSpec| {
        let mut found = spec.jail.env.iter().rev();
        found
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.clone())
    };
    let has = value(has);
    (has != value(asked)).then(|| Difference {
        setting: "env",
        has: match has {
            Some(_) => format!("{name} with another value"),
            None => format!("without {name}"),
        },
        asked: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_sandbox::Backend;
    use glovebox_spec::Net;

    fn wanted(spec: SandboxSpec) -> ResolvedSpec {
        ResolvedSpec {
            spec,
            toolchains: Vec::new(),
            hidden: glovebox_workspace::HiddenPaths::default(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn each_difference_is_named_with_both_sides() {
        let has = SandboxSpec::new(Backend::NATIVE);
        let mut asked = has.clone();
        let name = Name::parse("work").unwrap();
        assert!(check(&name, &has, &wanted(asked.clone()), &[]).is_ok());
        asked.jail.env.push(("PATH".to_owned(), "/x".to_owned()));
        assert!(check(&name, &has, &wanted(asked.clone()), &[]).is_ok());
        asked.jail.net = Net::Host;
        asked.jail.limits.memory_bytes = Some(1 << 30);
        asked.jail.env.push(("TOKEN".to_owned(), "hush".to_owned()));
        let error = check(&name, &has, &wanted(asked), &["TOKEN".to_owned()]).unwrap_err();
        assert_eq!(
            error.message(),
            "the sandbox `work` runs with other settings: net is none, asked for host; memory is none, asked for \
             1GiB; env is without TOKEN, asked for TOKEN"
        );
    }
}
