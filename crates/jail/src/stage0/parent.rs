//! Stage 0's parent: the steps that need the host's authority, done from outside the sandbox.

use super::{BATCH, FailedStep, ParentMessage, ParentPlan, ProcessExit, Report, SandboxNamespaces};
use crate::channel;
use crate::mount;
use crate::plan::{Extent, Identity, Idmap, MapWriter, Source};
use crate::sys::holder::Holder;
use glovebox_spec::{SANDBOX_GID, SANDBOX_UID};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;
use std::process::Command;

/// Reports the child, writes its id maps, opens the sources that it cannot open itself, and lets it
/// go on.
pub(super) fn finish(
    control: &OwnedFd,
    gate: &OwnedFd,
    pid: Pid,
    pidfd: &OwnedFd,
    born: &Report,
) -> ProcessExit {
    let spaces = SandboxNamespaces::of(pid);
    let mut fds = vec![pidfd.as_fd()];
    if let Some(spaces) = &spaces {
        fds.extend([spaces.user.as_fd(), spaces.mount.as_fd()]);
    }
    if channel::send(control, born, &fds).is_err() {
        return ProcessExit(1);
    }
    // Without a plan the host has given up. Returning closes this end of the gate, so the child
    // ends too.
    let Ok(Some((plan, _))) = channel::receive::<ParentPlan>(control) else {
        return ProcessExit(1);
    };
    match prepare(control, gate, &plan, pid) {
        Ok(()) => ProcessExit(0),
        Err(broken) => {
            let _ = channel::send(control, &Report::Broken(broken), &[]);
            ProcessExit(1)
        }
    }
}

fn prepare(
    control: &OwnedFd,
    gate: &OwnedFd,
    plan: &ParentPlan,
    pid: Pid,
) -> Result<(), FailedStep> {
    write_maps(&plan.identity, pid)?;
    let broken_gate = |_| FailedStep::new("reach the sandbox's first process", Errno::PIPE);
    if plan.identity.writer != MapWriter::Privileged {
        return channel::send(gate, &ParentMessage { has_sources: false }, &[])
            .map_err(broken_gate);
    }
    channel::send(gate, &ParentMessage { has_sources: true }, &[]).map_err(broken_gate)?;
    let OpenedSources { mounts, holders } = open_sources(
        &plan.identity,
        &plan.sources,
        &user_namespace(pid)?,
        |note| {
            let _ = channel::send(control, &Report::Degraded(note), &[]);
        },
    )?;
    for batch in mounts.chunks(BATCH) {
        let fds: Vec<BorrowedFd<'_>> = batch.iter().map(AsFd::as_fd).collect();
        channel::send(gate, &(), &fds).map_err(broken_gate)?;
    }
    // Dropping waits for the holders to end. It comes last, so that the child need not wait for
    // them.
    drop(holders);
    Ok(())
}

/// Opened sources of a sandbox.
pub(crate) struct OpenedSources {
    /// Detached mounts, one for each source, in order.
    pub(crate) mounts: Vec<OwnedFd>,
    /// Holders of the namespaces that the translations were made with. They are no longer needed.
    pub(crate) holders: Vec<Holder>,
}

/// Opens the sources of a sandbox with their owners translated. `range` is the sandbox's user
/// namespace. `degraded` is called with each restriction that could only be applied in part.
pub(crate) fn open_sources(
    identity: &Identity,
    sources: &[Source],
    range: &OwnedFd,
    mut degraded: impl FnMut(String),
) -> Result<OpenedSources, FailedStep> {
    let mut owner: Option<Option<OwnedFd>> = None;
    let mut others: HashMap<(u32, u32), Option<OwnedFd>> = HashMap::new();
    let mut shifts: HashMap<u32, OwnedFd> = HashMap::new();
    let mut mounts = Vec::with_capacity(sources.len());
    let mut holders = Vec::new();
    for source in sources {
        let idmap = match source.idmap {
            Idmap::None => None,
            Idmap::Range => Some(range.as_fd()),
            Idmap::Owner => {
                let owner = match &mut owner {
                    Some(owner) => owner,
                    none => {
                        let ids = (identity.owner_uid, identity.owner_gid);
                        none.insert(owner_namespace(identity, ids, &mut holders)?)
                    }
                };
                Some(owner.as_ref().map_or(range.as_fd(), AsFd::as_fd))
            }
            Idmap::OwnedBy { uid, gid } => {
                let ids = (uid, gid);
                if let Entry::Vacant(vacant) = others.entry(ids) {
                    vacant.insert(owner_namespace(identity, ids, &mut holders)?);
                }
                let owner = others.get(&ids).and_then(Option::as_ref);
                Some(owner.map_or(range.as_fd(), AsFd::as_fd))
            }
            Idmap::Shift(first) => {
                if let Entry::Vacant(vacant) = shifts.entry(first) {
                    vacant.insert(shift_namespace(identity, first, &mut holders)?);
                }
                shifts.get(&first).map(AsFd::as_fd)
            }
        };
        let (mount, note) = open_mapped(source, idmap)?;
        mounts.push(mount);
        if let Some(note) = note {
            degraded(note);
        }
    }
    Ok(OpenedSources { mounts, holders })
}

/// Opens a source with its owners translated. A read-only tree on a file system that cannot
/// translate owners is shown untranslated, with a note for the report: its files then belong to the
/// overflow user, and only those that everybody may read can be read. A layer of an overlay is an
/// error instead, because commands write above it as its owner.
fn open_mapped(
    source: &Source,
    idmap: Option<BorrowedFd<'_>>,
) -> Result<(OwnedFd, Option<String>), FailedStep> {
    let path = source.path.as_path();
    let fail = |errno| FailedStep::new(format!("open {} for the sandbox", path.display()), errno);
    let mount = mount::copy_path(path, source.is_recursive).map_err(fail)?;
    match mount::narrow(&mount, source.is_read_only, idmap, source.is_recursive) {
        Ok(()) => Ok((mount, None)),
        Err(Errno::INVAL)
            if source.idmap == Idmap::Range || (source.is_recursive && source.is_read_only) =>
        {
            // The failed call changed nothing, so the copy can be used.
            mount::narrow(&mount, source.is_read_only, None, source.is_recursive).map_err(fail)?;
            let note = format!(
                "{}: its file system does not support id-mapped mounts, so owners show as nobody",
                path.display()
            );
            Ok((mount, Some(note)))
        }
        Err(errno) => Err(FailedStep::new(
            format!(
                "translate the owners of {} (its file system may not support id-mapped mounts; \
                 run as the owner of the directory instead of root, or move it)",
                path.display()
            ),
            errno,
        )),
    }
}

fn proc_file(pid: Pid, name: &str) -> String {
    format!("/proc/{}/{name}", pid.as_raw_nonzero())
}

fn user_namespace(pid: Pid) -> Result<OwnedFd, FailedStep> {
    rustix::fs::open(
        proc_file(pid, "ns/user"),
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|errno| FailedStep::new("open the sandbox's user namespace", errno))
}

/// Returns a user namespace that only serves for its maps: those of the sandbox, with the ids of an
/// owner and the sandbox user exchanged. `None` if they are the same.
fn owner_namespace(
    identity: &Identity,
    (uid, gid): (u32, u32),
    holders: &mut Vec<Holder>,
) -> Result<Option<OwnedFd>, FailedStep> {
    if (uid, gid) == (SANDBOX_UID, SANDBOX_GID) {
        return Ok(None);
    }
    let uids = exchange(&identity.uids, uid, SANDBOX_UID);
    let gids = exchange(&identity.gids, gid, SANDBOX_GID);
    let step = "create the user namespace of the owner of a directory";
    map_namespace(&uids, &gids, step, holders).map(Some)
}

/// Returns a user namespace that maps the ids of the leased range beginning at `first` to those of
/// this sandbox.
fn shift_namespace(
    identity: &Identity,
    first: u32,
    holders: &mut Vec<Holder>,
) -> Result<OwnedFd, FailedStep> {
    let shift = |extents: &[Extent]| -> Vec<Extent> {
        extents
            .iter()
            .map(|extent| Extent {
                inside: first.saturating_add(extent.inside),
                ..*extent
            })
            .collect()
    };
    map_namespace(
        &shift(&identity.uids),
        &shift(&identity.gids),
        "create the user namespace of a frozen layer",
        holders,
    )
}

fn map_namespace(
    uids: &[Extent],
    gids: &[Extent],
    step: &str,
    holders: &mut Vec<Holder>,
) -> Result<OwnedFd, FailedStep> {
    let holder =
        Holder::start(libc::CLONE_NEWUSER).map_err(|errno| FailedStep::new(step, errno))?;
    let pid = holder.pid();
    holders.push(holder);
    write_map(pid, "uid_map", uids)?;
    write_map(pid, "gid_map", gids)?;
    user_namespace(pid)
}

/// Returns the map in which the ids `a` and `b` are exchanged, if the range has `a`.
fn exchange(extents: &[Extent], a: u32, b: u32) -> Vec<Extent> {
    let mut result = Vec::new();
    for extent in extents {
        let end = extent.inside + extent.count;
        let mut cuts = vec![extent.inside, end];
        for id in [a, b] {
            if (extent.inside..end).contains(&id) {
                cuts.extend([id, id + 1]);
            }
        }
        cuts.sort_unstable();
        cuts.dedup();
        for pair in cuts.windows(2) {
            let [from, to] = [pair[0], pair[1]];
            result.push(Extent {
                inside: from,
                outside: extent.outside + (from - extent.inside),
                count: to - from,
            });
        }
    }
    let outside_of = |id: u32, list: &[Extent]| {
        list.iter()
            .find(|e| e.inside == id && e.count == 1)
            .map(|e| e.outside)
    };
    let (outside_a, outside_b) = (outside_of(a, &result), outside_of(b, &result));
    if let Some(outside_b) = outside_b {
        result.retain(|extent| extent.inside != a || outside_a.is_none());
        result.retain(|extent| extent.inside != b);
        result.push(Extent {
            inside: a,
            outside: outside_b,
            count: 1,
        });
        if let Some(outside_a) = outside_a.filter(|_| a != b) {
            result.push(Extent {
                inside: b,
                outside: outside_a,
                count: 1,
            });
        }
    }
    result.sort_by_key(|extent| extent.inside);
    result
}

fn write_maps(identity: &Identity, pid: Pid) -> Result<(), FailedStep> {
    match identity.writer {
        MapWriter::Newuidmap => {
            run_map_tool("newuidmap", pid, &identity.uids)?;
            run_map_tool("newgidmap", pid, &identity.gids)
        }
        MapWriter::Single => {
            // An unprivileged process may write gid_map only after this (user_namespaces(7)).
            write_proc(pid, "setgroups", "deny")?;
            write_map(pid, "uid_map", &identity.uids)?;
            write_map(pid, "gid_map", &identity.gids)
        }
        MapWriter::Privileged => {
            write_map(pid, "uid_map", &identity.uids)?;
            write_map(pid, "gid_map", &identity.gids)
        }
    }
}

fn write_map(pid: Pid, name: &str, extents: &[Extent]) -> Result<(), FailedStep> {
    let mut text = String::new();
    for Extent {
        inside,
        outside,
        count,
    } in extents
    {
        let _ = writeln!(text, "{inside} {outside} {count}");
    }
    write_proc(pid, name, &text)
}

/// Writes a file of the child's `/proc`. The kernel takes a map in one write only.
fn write_proc(pid: Pid, name: &str, text: &str) -> Result<(), FailedStep> {
    let fail = |errno| FailedStep::new(format!("write the sandbox's {name}"), errno);
    let file = rustix::fs::open(
        proc_file(pid, name),
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(fail)?;
    rustix::io::write(&file, text.as_bytes())
        .map(drop)
        .map_err(fail)
}

fn run_map_tool(tool: &str, pid: Pid, extents: &[Extent]) -> Result<(), FailedStep> {
    let mut command = Command::new(format!("/usr/bin/{tool}"));
    command.env_clear().arg(pid.as_raw_nonzero().to_string());
    for Extent {
        inside,
        outside,
        count,
    } in extents
    {
        command.args([inside.to_string(), outside.to_string(), count.to_string()]);
    }
    let step = || format!("map the subordinate ids with {tool}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(FailedStep::new(step(), Errno::PERM)),
        Err(error) => Err(FailedStep::new(
            step(),
            Errno::from_io_error(&error).unwrap_or(Errno::NOENT),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lookup(extents: &[Extent], id: u32) -> Option<u32> {
        extents.iter().find_map(|e| {
            (id >= e.inside && id - e.inside < e.count).then(|| e.outside + (id - e.inside))
        })
    }

    proptest! {
        #[test]
        fn exchange_swaps_two_ids_and_nothing_else(a in 0_u32..70_000, probe in 0_u32..65_536) {
            let base = 1_000_000;
            let map = exchange(&[Extent { inside: 0, outside: base, count: 65_536 }], a, 1000);
            prop_assert_eq!(lookup(&map, a), Some(base + 1000));
            let expected = match probe {
                id if id == a => Some(base + 1000),
                1000 if a < 65_536 => Some(base + a),
                // An owner beyond the range takes this place, so no id is left to exchange with.
                1000 => None,
                id => Some(base + id),
            };
            prop_assert_eq!(lookup(&map, probe), expected);
            prop_assert!(map.len() <= 5);
        }
    }
}
