//! Spec of a child: the session's own spec, narrowed. Nothing in this module widens it.

use super::spawn::{Spawn, Workspace};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::{SandboxSpec, SubSandboxes};
use glovebox_spec::{Net, WorkspaceAccess};

/// Changes the session's spec into that of the requested child.
///
/// # Errors
/// `permission-denied` if the request exceeds the session's own rights; `invalid-argument` for a
/// limit of zero; `unsupported` if the backend cannot enforce the request.
// TRUST: a model makes the request. Each field is compared with the session's, or only removes a
// right.
pub(super) fn narrow(spec: &mut SandboxSpec, wish: &Spawn) -> Result<(), Fault> {
    match spec.backend.capabilities().sub_sandboxes {
        SubSandboxes::Narrowed => {}
        SubSandboxes::None => {
            return Err(Fault::refused(
                Code::Unsupported,
                "there are no walls around this session that another sandbox could have",
            )
            .remedy("work in a sandbox of the native backend"));
        }
        SubSandboxes::SameAsSession
            if wish.workspace == Workspace::Same && wish.network.is_none() => {}
        SubSandboxes::SameAsSession => {
            return Err(Fault::failed(
                Code::Unsupported,
                "files and network of a sandbox elsewhere are as they are there",
            )
            .remedy("leave `workspace` and `network` out"));
        }
    }
    let jail = &mut spec.jail;
    match wish.workspace {
        Workspace::Same => {}
        Workspace::ReadOnly => jail.workspace_access = WorkspaceAccess::ReadOnly,
        Workspace::Empty => {
            jail.workspace = None;
            jail.workspace_access = WorkspaceAccess::Overlay;
            jail.hidden.clear();
            jail.repositories.clear();
            // Relative paths are below the workspace, which is absent. Absolute ones belong to
            // grants.
            jail.replaced.retain(|file| file.path.is_absolute());
            jail.start_dir.clear();
            jail.protected.clear();
        }
    }
    match wish.network {
        Some(true) if jail.net == Net::None => {
            return Err(wider("network", "this session has none"));
        }
        Some(false) => jail.net = Net::None,
        Some(true) | None => {}
    }
    // The values are held by the process that started the session, and stay there.
    spec.secrets.clear();
    spec.certificates.clear();
    let limits = &mut jail.limits;
    limits.memory_bytes = lower("memory_mib", limits.memory_bytes, wish.memory_mib, 1 << 20)?;
    limits.disk_bytes = lower("disk_mib", limits.disk_bytes, wish.disk_mib, 1 << 20)?;
    limits.wall_ms = lower("seconds", limits.wall_ms, wish.seconds, 1000)?;
    limits.cpu_millis = lower_small("cpu_millis", limits.cpu_millis, wish.cpu_millis)?;
    limits.pids = lower_small("processes", limits.pids, wish.processes)?;
    Ok(())
}

/// Returns the limit of the child: `wish` in units of `unit`, or the session's own limit if there
/// is no wish.
///
/// # Errors
/// `permission-denied` if the session has less; `invalid-argument` for zero or an overflow.
fn lower(name: &str, own: Option<u64>, wish: Option<u64>, unit: u64) -> Result<Option<u64>, Fault> {
    let Some(wish) = wish else { return Ok(own) };
    let wanted = wish.checked_mul(unit).filter(|wanted| *wanted > 0);
    match (wanted, own) {
        (Some(wanted), Some(own)) if wanted > own => {
            Err(wider(name, &format!("this session has {}", own / unit)))
        }
        (Some(wanted), _) => Ok(Some(wanted)),
        (None, _) => Err(Fault::failed(
            Code::InvalidArgument,
            format!("`{name}` is not a limit that anything could run under"),
        )),
    }
}

fn lower_small(name: &str, own: Option<u32>, wish: Option<u64>) -> Result<Option<u32>, Fault> {
    let limit = lower(name, own.map(u64::from), wish, 1)?;
    // A value that does not fit into `u32` exceeds every machine, so the maximum is equivalent.
    Ok(limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)))
}

fn wider(name: &str, has: &str) -> Fault {
    Fault::refused(
        Code::PermissionDenied,
        format!("`{name}` would be more than this session has: {has}"),
    )
    .remedy("a sandbox that a session makes can do less than the session, not more")
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_sandbox::Backend;
    use glovebox_spec::{Grant, Limits, ReplacedFile};
    use proptest::prelude::*;

    fn session() -> SandboxSpec {
        let mut spec = SandboxSpec::new(Backend::NATIVE);
        spec.secrets = vec!["T=env:T@a.test".parse().unwrap()];
        spec.jail.workspace = Some("/project".into());
        spec.jail.hidden = vec![".env".into()];
        spec.jail.start_dir = "crates/a".into();
        spec.jail.replaced = [".git/config", "/opt/config"]
            .map(|path| ReplacedFile {
                path: path.into(),
                content: Vec::new(),
            })
            .into();
        spec.jail.grants = vec![Grant {
            source: "/opt".into(),
            target: "/opt".into(),
        }];
        spec.jail.limits = Limits {
            memory_bytes: Some(512 << 20),
            pids: Some(64),
            ..Limits::default()
        };
        spec
    }

    fn refusal(spec: &SandboxSpec, wish: &Spawn) -> Code {
        narrow(&mut spec.clone(), wish).unwrap_err().code
    }

    #[test]
    fn more_than_the_session_has_is_refused() {
        let memory = Spawn {
            memory_mib: Some(513),
            ..Spawn::default()
        };
        let network = Spawn {
            network: Some(true),
            ..Spawn::default()
        };
        let nothing = Spawn {
            processes: Some(0),
            ..Spawn::default()
        };
        assert_eq!(refusal(&session(), &memory), Code::PermissionDenied);
        assert_eq!(refusal(&session(), &network), Code::PermissionDenied);
        assert_eq!(refusal(&session(), &nothing), Code::InvalidArgument);
        let host = SandboxSpec::new(Backend::HOST);
        assert_eq!(refusal(&host, &Spawn::default()), Code::Unsupported);
    }

    proptest! {
        #[test]
        fn no_wish_widens_anything(
            workspace in prop_oneof![
                Just(Workspace::Same), Just(Workspace::ReadOnly), Just(Workspace::Empty)
            ],
            network: Option<bool>, memory_mib: Option<u64>, cpu_millis: Option<u64>,
            processes: Option<u64>, disk_mib: Option<u64>, seconds: Option<u64>, has_network: bool,
        ) {
            let mut own = session();
            own.jail.net = if has_network { Net::Egress } else { Net::None };
            let wish = Spawn {
                workspace, network, memory_mib, cpu_millis, processes, disk_mib, seconds,
                ..Spawn::default()
            };
            let mut child = own.clone();
            if narrow(&mut child, &wish).is_ok() {
                prop_assert!(child.secrets.is_empty());
                let (own, child) = (own.jail, child.jail);
                prop_assert!(child.net == Net::None || child.net == own.net);
                prop_assert_eq!(&child.grants, &own.grants);
                prop_assert!(child.workspace.is_none() || child.workspace == own.workspace);
                prop_assert!(child.workspace.is_none() || child.hidden == own.hidden);
                prop_assert!(child.workspace.is_none() || child.replaced == own.replaced);
                prop_assert!(child.replaced_in_grants().eq(own.replaced_in_grants()));
                prop_assert!(child.workspace.is_some() || child.start_dir.as_os_str().is_empty());
                prop_assert!(child.limits.memory_bytes.unwrap() <= 512 << 20);
                prop_assert!(child.limits.pids.unwrap() <= 64);
            }
        }
    }
}
