//! Description of a plan in plain words, for `--explain`.

use crate::bounds;
use crate::cgroup::GROUPS;
use crate::plan::{BytePath, Extent, Idmap, MapWriter, Plan, Step, WHOLE_PROC};
use glovebox_spec::Net;
use std::fmt;

fn show(path: &BytePath) -> String {
    path.as_path()
        .display()
        .to_string()
        .escape_debug()
        .to_string()
}

fn list(f: &mut fmt::Formatter<'_>, what: &str, extents: &[Extent]) -> fmt::Result {
    for Extent {
        inside,
        outside,
        count,
    } in extents
    {
        writeln!(
            f,
            "  {what} {inside}..{} inside = {outside}.. outside",
            inside + count - 1
        )?;
    }
    Ok(())
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "namespaces")?;
        write!(f, "  user, mount, pid, ipc, uts, cgroup")?;
        writeln!(
            f,
            "{}",
            match self.net {
                Net::Egress => ", network (loopback, and a way out through the owner)",
                Net::None => ", network (loopback only)",
                Net::Host => "",
            }
        )?;
        if self.net == Net::Host {
            writeln!(f, "  NETWORK SHARED WITH THE HOST")?;
        }
        writeln!(f, "identity")?;
        let writer = match self.identity.writer {
            MapWriter::Privileged => "leased range, written as root",
            MapWriter::Single => "one id",
            MapWriter::Newuidmap => "subordinate ids, written by newuidmap and newgidmap",
        };
        writeln!(f, "  {writer}")?;
        list(f, "uid", &self.identity.uids)?;
        list(f, "gid", &self.identity.gids)?;
        writeln!(f, "mounts, in order")?;
        for step in &self.steps {
            self.explain_step(f, step)?;
        }
        writeln!(f, "seal")?;
        writeln!(
            f,
            "  user {} group {}, no capabilities, no_new_privs",
            self.seal.uid, self.seal.gid
        )?;
        let writable: Vec<String> = self.seal.writable.iter().map(show).collect();
        let writable = writable.join(", ");
        if let Some(nested) = self.seal.nested {
            writeln!(
                f,
                "  COMMANDS MAY MAKE NAMESPACES: up to {} of each kind, {} of control groups",
                nested.namespaces, nested.cgroup_namespaces
            )?;
            writeln!(
                f,
                "  system-call allow-list for that; no Landlock rules on commands"
            )?;
            writeln!(
                f,
                "  file operations of ours write below {writable} (Landlock)"
            )?;
        } else {
            writeln!(f, "  no further user namespaces, system-call allow-list")?;
            writeln!(f, "  commands may write below {writable} (Landlock)")?;
        }
        for bound in bounds::in_force(self.seal.open_files) {
            writeln!(f, "  {bound} ({})", bound.mechanism())?;
        }
        if let Some(bytes) = self.seal.file_bytes {
            writeln!(f, "  files up to {bytes} bytes")?;
        }
        if let Some(count) = self.seal.processes {
            writeln!(f, "  up to {count} processes and threads (RLIMIT_NPROC)")?;
        }
        if let Some(processors) = &self.seal.processors {
            writeln!(
                f,
                "  commands start on {} of the machine's processors (affinity)",
                processors.count()
            )?;
        }
        writeln!(f, "environment")?;
        for (name, value) in &self.env {
            writeln!(f, "  {name}={}", value.escape_debug())?;
        }
        Ok(())
    }
}

impl Plan {
    fn explain_step(&self, f: &mut fmt::Formatter<'_>, step: &Step) -> fmt::Result {
        let source = |index: usize| {
            self.sources.get(index).map_or_else(String::new, |source| {
                let owners = match source.idmap {
                    Idmap::None => "",
                    Idmap::Range => ", owners shifted into the range",
                    Idmap::Owner | Idmap::OwnedBy { .. } => ", its owner shown as the sandbox user",
                    Idmap::Shift(_) => ", owners shifted from the range that wrote it",
                };
                let access = if source.is_read_only {
                    ""
                } else {
                    ", WRITTEN ON THE HOST"
                };
                format!("{}{owners}{access}", show(&source.path))
            })
        };
        match step {
            Step::Overlay {
                target,
                lowers,
                layer,
                is_read_only,
            } => {
                let writes = if *is_read_only {
                    "read-only".to_owned()
                } else {
                    format!("writes go to layer `{layer}`")
                };
                writeln!(f, "  {}: overlay, {writes}", show(target))?;
                if lowers.is_empty() {
                    return writeln!(f, "      over nothing");
                }
                for lower in lowers {
                    writeln!(f, "      over {}", source(*lower))?;
                }
                Ok(())
            }
            Step::Bind {
                source: index,
                target,
            } => {
                let is_read_only = self.sources.get(*index).is_some_and(|at| at.is_read_only);
                let access = if is_read_only { ", read-only" } else { "" };
                writeln!(f, "  {}: {}{access}", show(target), source(*index))
            }
            Step::Proc {
                pids_only: true, ..
            } => writeln!(f, "  /proc: processes only"),
            Step::Proc {
                read_only, covered, ..
            } => writeln!(
                f,
                "  /proc: new; read-only {}; covered {}",
                read_only.join(", "),
                if covered.is_empty() {
                    "nothing".to_owned()
                } else {
                    covered.join(", ")
                }
            ),
            Step::Dev {
                shm_bytes,
                has_whole_proc,
            } => {
                writeln!(
                    f,
                    "  /dev: null zero full random urandom tty pts shm ({shm_bytes} bytes)"
                )?;
                if *has_whole_proc {
                    writeln!(f, "  /dev/{WHOLE_PROC}: another /proc, covered as a whole")?;
                }
                Ok(())
            }
            Step::Cover { target } => writeln!(f, "  {}: covered", show(target)),
            Step::Groups { views } => {
                let names: Vec<&str> = views
                    .iter()
                    .map(|view| view.name.as_str())
                    .filter(|name| !name.is_empty())
                    .collect();
                let of_version_1 = if names.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", names.join(", "))
                };
                writeln!(
                    f,
                    "  {GROUPS}: the sandbox's own control group{of_version_1}, read-only"
                )
            }
        }
    }
}
