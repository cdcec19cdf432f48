//! Resolves settings and surroundings to the specification of a sandbox.

mod file_systems;
mod mounted;
mod service;
mod upstream;

pub use file_systems::fit_file_systems;
pub use service::{renew_credential, resolve_service};
pub use upstream::renew_upstream;

use crate::Error;
use crate::host::{self, GitSettings, Toolchain};
use crate::note::Note;
use crate::secrets;
use glovebox_egress::{MachineProxy, Policy};
use glovebox_proto::{AdvicePart, EnvVar, Remedy, Setting};
use glovebox_sandbox::{Backend, Files, SandboxSpec, WorkspaceMode};
use glovebox_settings::units::Span;
use glovebox_settings::{EnvArg, GrantArg};
use glovebox_settings::{Origin, Settings, SourcedValue, Surroundings, net_word, texts};
use glovebox_spec::{
    CacheDir, Grant, Isolation, Layers, LimitKind, Net, ReplacedFile, RootFs, WORKSPACE,
    WorkspaceAccess,
};
use glovebox_workspace::{
    HiddenPaths, HideRules, OutsideRepository, find_hidden, find_outside, find_repositories,
    normalize_path,
};
use serde_bytes::ByteBuf;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Specification of a sandbox, and facts about it for the user.
#[derive(Debug)]
pub struct ResolvedSpec {
    /// Specification to start.
    pub spec: SandboxSpec,
    /// Toolchains that were granted.
    pub toolchains: Vec<Toolchain>,
    /// Paths of the project that the sandbox does not show.
    pub hidden: HiddenPaths,
    /// Further notes for the user, such as variables that commands do not get.
    pub notes: Vec<Note>,
}

/// Resolves the specification of a sandbox. `wall_ms` is the maximum lifetime of the sandbox in
/// milliseconds.
///
/// # Errors
/// Usage errors for settings that contradict each other or name something that does not exist.
pub fn resolve_spec(
    settings: &Settings,
    host: &Surroundings,
    project: &Path,
    wall_ms: Option<u64>,
) -> Result<ResolvedSpec, Error> {
    // TRUST: checked again, independent of the caller: nothing of an untrusted project enters a
    // spec.
    settings.check_project(settings.is_outside_native())?;
    let backend = backend(settings)?;
    // Limits of the network need listed hosts; [`egress`] rejects flags that set them without.
    let has_egress = settings.net.value == Net::Egress;
    let mut limits = settings.limits.to_limits(wall_ms);
    if !has_egress {
        for kind in LimitKind::OF_NETWORK {
            limits.set_value(kind, None);
        }
    }
    let mut require: Vec<_> = settings.require.iter().map(|limit| limit.value).collect();
    require.sort_unstable();
    require.dedup();
    let mut jail = Isolation {
        net: settings.net.value,
        proc: settings.proc.value,
        is_nested: settings.nested.value && backend.capabilities().can_nest,
        layers: settings.layers.value,
        ids: settings.ids.value,
        limits,
        require,
        ..Isolation::default()
    };
    let mut toolchains = Vec::new();
    let mut hidden = HiddenPaths::default();
    let mut notes = Vec::new();
    let mut variables = Vec::new();
    let mut cwd = None;
    let mut cache_project = None;
    let start_dir = host.start_dir(project);
    match backend.capabilities().files {
        Files::Layers => {
            match settings.workspace_mode() {
                WorkspaceMode::Overlay => jail.workspace = Some(project.to_owned()),
                WorkspaceMode::ReadOnly => {
                    jail.workspace = Some(project.to_owned());
                    jail.workspace_access = WorkspaceAccess::ReadOnly;
                }
                WorkspaceMode::Live => {
                    jail.workspace = Some(project.to_owned());
                    jail.workspace_access = WorkspaceAccess::Live;
                    jail.protected = protected(project);
                }
                WorkspaceMode::Copy | WorkspaceMode::None => jail.workspace = None,
            }
            if jail.workspace.is_some() {
                hidden = find_hidden(project, &hide_rules(settings))?;
                jail.hidden = hidden.paths.iter().map(|(path, _)| path.clone()).collect();
                jail.replaced = hidden.replaced.iter().map(replaced_file).collect();
            }
            if settings.workspace_mode() != WorkspaceMode::None
                && !jail.hidden.iter().any(|path| start_dir.starts_with(path))
            {
                jail.start_dir = start_dir;
            }
            jail.rootfs = rootfs(settings, host)?;
            jail.home = host
                .home()
                .map_or_else(|| jail.home.clone(), Path::to_owned);
            jail.grants = grants(&settings.grants, host)?;
            let user_grants = jail.grants.clone();
            if jail.workspace_access == WorkspaceAccess::Live {
                notes.extend(show_repository(&mut jail, project));
            } else if jail.workspace.is_some() {
                notes.extend(seed_repositories(&mut jail, &mut hidden, project));
            }
            if settings.toolchains.value && jail.rootfs == RootFs::Host {
                toolchains =
                    host::find_toolchains(host, |path| host::is_shown(&RootFs::Host, path));
                jail.grants.extend(
                    toolchains
                        .iter()
                        .flat_map(|toolchain| toolchain.grants.iter().cloned()),
                );
                let environments = host::find_environments(host, project, |path| {
                    host::place_inside(&shown(&jail), path).is_some()
                });
                jail.grants.extend(environments.grants);
                variables.extend(environments.env);
                notes.extend(environments.notes);
            }
            let keeps_caches =
                settings.cache.value && jail.workspace.is_some() && jail.layers == Layers::Disk;
            if jail.rootfs == RootFs::Host {
                let wish = host::CacheOptions {
                    shows_host: settings.toolchains.value,
                    is_kept: keeps_caches,
                    project,
                    grants: &user_grants,
                };
                jail.caches =
                    host::find_caches(host, &wish, |path| host::is_shown(&RootFs::Host, path));
                if keeps_caches {
                    cache_project = Some(project.to_owned());
                }
            }
            let path = host::visible_path(host, &jail.rootfs, &jail.grants, Some(project));
            let passed = host::passed_inside(host, &shown(&jail));
            jail.env = host::base_environment(path, &jail.home);
            jail.env.extend(passed.env);
            jail.env.extend(variables);
            if jail.net.is_own() {
                jail.env.extend(host::retry_limits(host));
                if jail.net == Net::Egress {
                    jail.env.extend(host::proxy_variables(&jail.hostname));
                }
            }
            jail.grants.extend(passed.grants);
            let terminal = host::find_terminal(host, &jail.rootfs, &jail.home);
            jail.grants.extend(terminal);
            // A cache shows the same content as a grant of its path, and is writable.
            jail.grants.retain(|grant| !is_a_cache(&jail.caches, grant));
            notes.extend(passed.notes);
            notes.extend(host::tell_links(host, project, &hidden.links, |path| {
                host::place_inside(&shown(&jail), path).is_some()
            }));
            jail.env.extend(
                toolchains
                    .iter()
                    .flat_map(|toolchain| toolchain.env.iter().cloned()),
            );
            let git = GitSettings::read(host, project);
            notes.extend(
                git.unreadable
                    .iter()
                    .map(|path| unreadable_git_settings(path)),
            );
            if cache_project.is_some() && jail.workspace_access == WorkspaceAccess::Overlay {
                let excludes = git.excludes_file.as_deref();
                jail.caches
                    .extend(host::find_build_output(project, excludes, &jail.hidden));
            }
            show_git_settings(&mut jail, &git);
        }
        Files::InPlace => {
            cwd = Some(host::below(project, &start_dir));
            jail.env = host::host_environment(host);
        }
        // A carrier is a program of this machine and needs this machine's variables.
        Files::Copied if backend.takes("carrier") => {
            jail.env = host::carrier_environment(host, project);
        }
        Files::Copied if backend.keeps_copy_here() => {
            // Commands use the programs of this machine at their own paths.
            if settings.toolchains.value {
                toolchains =
                    host::find_toolchains(host, |path| host::is_shown(&RootFs::Host, path));
            }
            let grants = toolchains.iter().flat_map(|found| &found.grants);
            jail.grants = grants.cloned().collect();
            let path = host::visible_path(host, &RootFs::Host, &jail.grants, None);
            let passed = host::passed_inside(host, &shown(&jail));
            // The backend gives each sandbox a home directory of its own.
            jail.env = host::base_environment(path, &jail.home);
            jail.env.extend(passed.env);
            if jail.net == Net::Egress {
                jail.env.extend(host::proxy_variables(&jail.hostname));
            }
            jail.grants.extend(passed.grants);
            notes.extend(passed.notes);
            jail.env.extend(
                toolchains
                    .iter()
                    .flat_map(|toolchain| toolchain.env.iter().cloned()),
            );
        }
        Files::Copied => {}
    }
    let egress = egress(settings)?;
    let secrets = secrets::resolve(settings, host, &egress)?;
    secrets::check_files(&secrets, &shown(&jail))?;
    let (upstream, unused) = upstream::find(settings.net.value, host);
    notes.extend(unused);
    let speaks_tls = upstream.as_ref().is_some_and(MachineProxy::speaks_tls);
    let spec = SandboxSpec {
        jail,
        cwd,
        guest_dir: settings.guest_dir.value.clone(),
        options: service::options(backend, settings, host),
        credential: service::credential(backend, settings, host)?,
        start_ms: start_ms(settings),
        cache_owner: settings
            .cache_owner
            .clone()
            .filter(|_| cache_project.is_some()),
        cache_project,
        certificates: if secrets.is_empty() && !speaks_tls {
            Vec::new()
        } else {
            host::trusted_certificates(host)
        },
        secrets,
        upstream,
        egress,
        ..SandboxSpec::new(backend)
    };
    Ok(ResolvedSpec {
        spec,
        toolchains,
        hidden,
        notes,
    })
}

/// Returns the maximum time to start: the user's value, otherwise the backend's default, in
/// milliseconds.
fn start_ms(settings: &Settings) -> u64 {
    let usual = settings.backend.value.capabilities().start_ms;
    match settings.start_timeout.origin {
        Origin::Default => usual,
        _ => settings.start_timeout.value.0.unwrap_or(usual),
    }
}

/// Shows the user's git configuration inside and replaces an earlier one.
pub(crate) fn show_git_settings(jail: &mut Isolation, git: &GitSettings) {
    // Git's own path of the system configuration is compiled in, so a variable names the file.
    // Other programs read `/etc/gitconfig`, which cannot be replaced if the host's whole `/etc` is
    // shown.
    let path = match jail.rootfs {
        RootFs::Host => "/etc/gitconfig",
        RootFs::HostAll | RootFs::Dir(_) => "/run/glovebox/git/config",
    };
    let variable = ("GIT_CONFIG_SYSTEM".to_owned(), path.to_owned());
    if !jail.env.contains(&variable) {
        jail.env.push(variable);
    }
    let files = git.shown_at(Path::new(path));
    let is_shown = |place: &Path| files.iter().any(|file| file.path == place);
    jail.replaced.retain(|file| !is_shown(&file.path));
    jail.replaced.extend(files);
}

fn shown(jail: &Isolation) -> host::SandboxView<'_> {
    host::SandboxView {
        rootfs: &jail.rootfs,
        net: jail.net,
        grants: &jail.grants,
        project: jail.workspace.as_deref(),
        hidden: jail.hidden.iter().map(PathBuf::as_path).collect(),
    }
}

/// Resolves the specification of a sandbox with a supervisor, or whose commands arrive one by one:
/// the user's variables belong to the sandbox, not to a command.
///
/// # Errors
/// As [`resolve_spec`]; a usage error for variables that the sandbox cannot have as a whole.
pub fn resolve_supervised_spec(
    settings: &Settings,
    host: &Surroundings,
    project: &Path,
    wall_ms: Option<u64>,
) -> Result<ResolvedSpec, Error> {
    let mut resolved = resolve_spec(settings, host, project, wall_ms)?;
    for var in command_env(settings.env.iter().map(|var| &var.value), host)? {
        let text = |bytes: Vec<u8>| {
            String::from_utf8(bytes).map_err(|_| {
                Error::usage(
                    "a variable of a named sandbox must be UTF-8",
                    "give it to `glovebox exec` instead",
                )
            })
        };
        let pair = (text(var.name.into_vec())?, text(var.value.into_vec())?);
        resolved.spec.jail.env.push(pair);
    }
    // Commands on another machine have the environment of that machine.
    if resolved.spec.backend.is_elsewhere() && !settings.env.is_empty() {
        return Err(Error::usage(
            "variables cannot be given to a sandbox that lives elsewhere as a whole",
            Remedy::advice([
                "give them to each command with ".into(),
                AdvicePart::command("glovebox exec", Setting::Env, None),
            ]),
        ));
    }
    Ok(resolved)
}

fn is_a_cache(caches: &[CacheDir], grant: &Grant) -> bool {
    caches
        .iter()
        .any(|cache| cache.target == grant.target && cache.source.as_ref() == Some(&grant.source))
}

fn replaced_file((path, content): &(PathBuf, Vec<u8>)) -> ReplacedFile {
    ReplacedFile {
        path: path.clone(),
        content: content.clone(),
    }
}

/// Gives the project's repositories git directories of their own inside. Returns a note for each
/// for which that is impossible.
fn seed_repositories(jail: &mut Isolation, hidden: &mut HiddenPaths, project: &Path) -> Vec<Note> {
    let found = find_repositories(project, &hidden.repositories, &jail.grants);
    let mut notes = Vec::new();
    if let Some(path) = found.foreign {
        notes.push(foreign_repository(&path));
    }
    for path in &found.hidden_objects {
        notes.push(Note {
            what: format!(
                "git does not work inside: objects of the repository lie in {}",
                path.display()
            ),
            remedy: Remedy::advice([
                Setting::Grant.of(path.display().to_string()),
                " shows them".into(),
            ]),
        });
    }
    for (path, why) in &found.unusable {
        let dir = path.parent().unwrap_or(path);
        notes.push(Note {
            what: format!(
                "git does not work inside in {}: {why}",
                Path::new(WORKSPACE)
                    .join(dir)
                    .components()
                    .as_path()
                    .display()
            ),
            remedy: Remedy::advice(["make it a plain git directory to have one there".into()]),
        });
    }
    if let Some(path) = found.excess.first() {
        let dir = path.parent().unwrap_or(path);
        notes.push(Note {
            what: format!(
                "{} repositories within the project are not there inside, such as that of {}",
                found.excess.len(),
                dir.display()
            ),
            remedy: Remedy::advice([
                Setting::Workspace.of("copy"),
                " shows them, or work in one with ".into(),
                Setting::Project.of("DIR"),
            ]),
        });
    }
    let seeded = found.seeded.iter().map(|one| one.path.join(".git"));
    let unusable = found.unusable.iter().map(|(path, _)| path.clone());
    let covered: Vec<PathBuf> = unusable.chain(found.excess).collect();
    let replaced: Vec<PathBuf> = seeded.chain(covered.iter().cloned()).collect();
    let is_replaced = |path: &Path| replaced.iter().any(|git_dir| path.starts_with(git_dir));
    // The seed holds a closed list of files without credentials, so its paths need not be hidden.
    hidden.paths.retain(|(path, _)| !is_replaced(path));
    jail.hidden = hidden.paths.iter().map(|(path, _)| path.clone()).collect();
    jail.hidden.extend(covered);
    jail.replaced.retain(|file| !is_replaced(&file.path));
    jail.repositories = found.seeded;
    notes
}

fn unreadable_git_settings(path: &Path) -> Note {
    Note {
        what: format!(
            "git does not have your settings inside: {} cannot be read as a git configuration",
            path.display()
        ),
        remedy: Remedy::advice(["`git config user.name` in the project tells why".into()]),
    }
}

fn foreign_repository(path: &Path) -> Note {
    Note {
        what: format!(
            "git does not work inside: the repository {} does not name this project",
            path.display()
        ),
        remedy: Remedy::advice([Setting::Grant.into(), " shows it nevertheless".into()]),
    }
}

/// Shows the repository of a linked working tree or a submodule that lies outside the project.
fn show_repository(jail: &mut Isolation, project: &Path) -> Option<Note> {
    match find_outside(project, Path::new(WORKSPACE)) {
        OutsideRepository::None => None,
        OutsideRepository::Shown(dirs) => {
            for dir in dirs {
                jail.replaced.extend(dir.replaced.iter().map(replaced_file));
                jail.grants.push(Grant {
                    source: dir.source,
                    target: dir.target,
                });
            }
            None
        }
        OutsideRepository::Foreign(path) => Some(foreign_repository(&path)),
    }
}

/// Returns the patterns of the settings that hide project files and that show otherwise hidden
/// ones.
pub fn hide_rules(settings: &Settings) -> HideRules {
    HideRules {
        exclude: texts(&settings.sync.push_exclude),
        include: texts(&settings.sync.push_include),
    }
}

/// Paths that stay read-only in a live workspace because this machine executes or obeys them. Only
/// existing paths can be protected.
const PROTECTED: [&str; 4] = [".git/hooks", ".git/config", ".git/info", "glovebox.toml"];

fn protected(project: &Path) -> Vec<PathBuf> {
    PROTECTED
        .iter()
        .map(PathBuf::from)
        .filter(|path| project.join(path).symlink_metadata().is_ok())
        .collect()
}

fn backend(settings: &Settings) -> Result<Backend, Error> {
    let kind = settings.backend.value;
    check_cache(settings)?;
    if let Some(flag) = meaningless_flag(settings) {
        return Err(Error::usage(
            format!(
                "--{flag} has no meaning with the backend `{}`",
                kind.as_str()
            ),
            Remedy::advice([
                "choose the backend it belongs to with ".into(),
                Setting::Backend.into(),
                ", or leave it out".into(),
            ]),
        ));
    }
    if kind.requires("carrier") && settings.carrier.value.is_empty() {
        return Err(Error::usage(
            format!(
                "the backend `{kind}` needs a carrier: the command that leads to the other side"
            ),
            Remedy::advice([
                "add one, such as ".into(),
                Setting::Carrier.of("ssh box"),
                " or ".into(),
                Setting::Carrier.of("docker exec -i NAME"),
            ]),
        ));
    }
    Ok(kind)
}

/// Returns an error for an explicit `--cache` without layers on disk, a project or the machine's
/// programs.
fn check_cache(settings: &Settings) -> Result<(), Error> {
    let is_asked = settings.cache.value && matches!(settings.cache.origin, Origin::Flag(_));
    if !is_asked || !settings.backend.value.has_layers() {
        return Ok(());
    }
    let needs = if settings.layers.value != Layers::Disk {
        "layers on disk"
    } else if settings.rootfs.value != RootFs::Host {
        "the programs of this machine as its root"
    } else if matches!(
        settings.workspace_mode(),
        WorkspaceMode::None | WorkspaceMode::Copy
    ) {
        "a project as an overlay, read-only or live"
    } else {
        return Ok(());
    };
    Err(Error::usage(
        format!("--cache has no meaning here: it needs {needs}"),
        "leave it out; package caches can be written to in any case, and go with the sandbox",
    ))
}

/// Returns a flag that the chosen backend cannot honour. To ignore a request for isolation without
/// a word would be dangerous, so such a flag is an error. Settings from files apply to all
/// sandboxes and are not checked.
fn meaningless_flag(settings: &Settings) -> Option<&'static str> {
    let flag = |origin: &Origin| match origin {
        Origin::Flag(name) => Some(*name),
        _ => None,
    };
    let backend = settings.backend.value;
    let capabilities = backend.capabilities();
    let of_others = [
        ("carrier", &settings.carrier.origin),
        ("guest_dir", &settings.guest_dir.origin),
    ];
    let foreign = of_others
        .into_iter()
        .filter(|(setting, _)| !backend.takes(setting))
        .find_map(|(_, origin)| flag(origin));
    if foreign.is_some() {
        return foreign;
    }
    let foreign = settings
        .backend_options
        .iter()
        .filter(|(name, _)| !backend.options().iter().any(|option| option.name == **name))
        .find_map(|(_, words)| flag(&words.origin));
    if foreign.is_some() {
        return foreign;
    }
    if !backend.is_elsewhere()
        && let Some(name) = flag(&settings.git.origin)
    {
        return Some(name);
    }
    if backend.has_layers() {
        return None;
    }
    let is_impossible = !capabilities
        .workspace_modes
        .contains(&settings.workspace_mode());
    if is_impossible && let Some(name) = flag(&settings.workspace.origin) {
        return Some(name);
    }
    let one = [
        ("rootfs", &settings.rootfs.origin),
        ("net", &settings.net.origin),
        ("layers", &settings.layers.origin),
        ("ids", &settings.ids.origin),
        ("proc", &settings.proc.origin),
        ("nested", &settings.nested.origin),
        ("toolchains", &settings.toolchains.origin),
        ("cache", &settings.cache.origin),
    ];
    let allow = settings.allow.iter().map(|word| ("allow", &word.origin));
    let deny = settings.deny.iter().map(|word| ("deny", &word.origin));
    let secrets = settings.secrets.iter().map(|one| ("secrets", &one.origin));
    let grants = settings
        .grants
        .iter()
        .map(|grant| ("grants", &grant.origin));
    one.into_iter()
        .chain(allow)
        .chain(deny)
        .chain(secrets)
        .chain(grants)
        .filter(|(setting, _)| !backend.takes(setting))
        .find_map(|(_, origin)| flag(origin))
}

/// Returns the policy of the egress proxy, empty for any other network.
fn egress(settings: &Settings) -> Result<Policy, Error> {
    if settings.net.value != Net::Egress {
        let hosts = settings.allow.iter().chain(&settings.deny);
        let limits = LimitKind::OF_NETWORK.map(|kind| {
            let limit = settings.limits.get(kind);
            (&limit.origin, settings.limits.text(kind))
        });
        let mut words = hosts
            .map(|word| (&word.origin, word.value.clone()))
            .chain(limits);
        if let Some((_, word)) = words.find(|(origin, _)| matches!(origin, Origin::Flag(_))) {
            return Err(Error::usage(
                format!(
                    "`{word}` is about a network of listed hosts, and the network is `{}`",
                    net_word(settings.net.value)
                ),
                [
                    Setting::Net.of("egress"),
                    " lets listed hosts through".into(),
                ],
            ));
        }
        return Ok(Policy::default());
    }
    let words = |list: &[SourcedValue<String>]| -> Vec<String> {
        list.iter().map(|word| word.value.clone()).collect()
    };
    Policy::new(&words(&settings.allow), &words(&settings.deny))
        .map_err(|error| Error::usage(error.to_string(), "name fewer hosts and ports"))
}

fn rootfs(settings: &Settings, host: &Surroundings) -> Result<RootFs, Error> {
    let RootFs::Dir(path) = &settings.rootfs.value else {
        return Ok(settings.rootfs.value.clone());
    };
    let path = host.absolute(path);
    let real = path.canonicalize().map_err(|error| {
        Error::io(
            format!("open the root file system {}", path.display()),
            &error,
        )
    })?;
    if !real.is_dir() {
        return Err(Error::usage(
            format!("the root file system {} is not a directory", path.display()),
            Remedy::advice([
                "name a directory that holds one with ".into(),
                Setting::Rootfs.of("dir:PATH"),
            ]),
        ));
    }
    Ok(RootFs::Dir(real))
}

fn grants(asked: &[SourcedValue<GrantArg>], host: &Surroundings) -> Result<Vec<Grant>, Error> {
    asked
        .iter()
        .map(|SourcedValue { value, origin }| {
            let source = host.absolute(&value.source);
            if let Err(error) = source.metadata() {
                return Err(
                    Error::io(format!("grant {} ({origin})", source.display()), &error)
                        .with_remedy("correct the path, or leave the grant out"),
                );
            }
            let target = normalize_path(value.target.as_deref().unwrap_or(&source));
            if target.parent().is_none() || target.starts_with(WORKSPACE) {
                return Err(Error::usage(
                    format!("a grant cannot appear at {} inside", target.display()),
                    "give another place with PATH:/TARGET",
                ));
            }
            Ok(Grant { source, target })
        })
        .collect()
}

/// Returns the variables for one command: `NAME=VALUE` as given, `NAME` with the host's value.
///
/// # Errors
/// Usage error for a name that the host has no value for.
pub fn command_env<'a>(
    asked: impl IntoIterator<Item = &'a EnvArg>,
    host: &Surroundings,
) -> Result<Vec<EnvVar>, Error> {
    asked
        .into_iter()
        .map(|EnvArg { name, value }| {
            let Some(value) = value.as_deref().or_else(|| host.exact_var(name)) else {
                return Err(Error::usage(
                    format!(
                        "there is no variable `{}` to pass on",
                        name.to_string_lossy()
                    ),
                    Remedy::advice([
                        "set it, or give a value with ".into(),
                        Setting::Env.of("NAME=VALUE"),
                    ]),
                ));
            };
            Ok(EnvVar {
                name: ByteBuf::from(name.as_bytes()),
                value: ByteBuf::from(value.as_bytes()),
            })
        })
        .collect()
}

/// Returns the user's timeout in milliseconds; `None` without one.
pub fn deadline_ms(settings: &Settings) -> Option<u64> {
    settings.timeout.value.and_then(|Span(ms)| ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_settings::SandboxFlags;

    fn settings(flags: &SandboxFlags) -> Settings {
        let mut settings = Settings::default();
        settings.lay_flags(flags);
        settings
    }

    #[test]
    fn variables_for_a_sandbox_elsewhere_are_an_error_and_not_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let host = Surroundings::fixed(dir.path(), dir.path(), &[]);
        let flags = |backend, carrier| SandboxFlags {
            backend: Some(backend),
            carrier,
            env: vec![EnvArg::parse("A=b".as_ref()).unwrap()],
            ..SandboxFlags::default()
        };
        let resolve = |flags: &SandboxFlags| {
            resolve_supervised_spec(&settings(flags), &host, dir.path(), None)
        };
        let carrier = Some("ssh box".parse().unwrap());
        let error = resolve(&flags(Backend::COMMAND, carrier)).unwrap_err();
        assert_eq!(
            error.message(),
            "variables cannot be given to a sandbox that lives elsewhere as a whole"
        );
        let here = resolve(&flags(Backend::HOST, None)).unwrap();
        assert!(
            here.spec
                .jail
                .env
                .contains(&("A".to_owned(), "b".to_owned()))
        );
    }

    #[test]
    fn walls_asked_of_a_backend_without_any_are_an_error() {
        let host = || SandboxFlags {
            backend: Some(Backend::HOST),
            ..SandboxFlags::default()
        };
        assert!(backend(&settings(&host())).is_ok());
        for flags in [
            SandboxFlags {
                net: Some(Net::None),
                ..host()
            },
            SandboxFlags {
                no_toolchains: true,
                ..host()
            },
            SandboxFlags {
                rootfs: Some(RootFs::Host),
                ..host()
            },
            SandboxFlags {
                grants: vec![GrantArg {
                    source: "/x".into(),
                    target: None,
                }],
                ..host()
            },
        ] {
            let error = backend(&settings(&flags)).unwrap_err();
            assert!(error.message().contains("has no meaning"), "{error:?}");
        }
    }
}
