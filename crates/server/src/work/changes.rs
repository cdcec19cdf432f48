//! What a session changed, collected from its sandbox, and taken over where it came from.

use super::App;
use super::tools::Unheard;
use glovebox_proto::{Code, Fault};
use glovebox_session::sync::apply::{self, ApplyOutcome, ApplyTarget, ReviewAnswer};
use glovebox_session::sync::changes_json::{changes_json, outcome_json};
use glovebox_session::sync::{
    SandboxChanges, collect_named, copied, destination, ignore_rules, outside, patch_error, paths,
};
use glovebox_session::{Error, Frontend as _};
use glovebox_settings::texts;
use glovebox_workspace::patch::{self, Style};
use glovebox_workspace::{CollectedChanges, Filter, Resolution};
use serde::Deserialize;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use utoipa::ToSchema;

/// Longest patch that is answered.
const MAX_PATCH_BYTES: usize = 64 << 20;

/// What becomes of files that both sides changed in a way that cannot be merged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Conflicts {
    /// The project's own stay; the sandbox's are put beside them.
    #[default]
    Beside,
    /// The sandbox's win.
    Theirs,
    /// Both are put into each file, between markers.
    Markers,
}

impl App {
    fn collect(&self, id: &str) -> Result<SandboxChanges, Error> {
        let name = self.session_sandbox(id)?;
        let rules = &self.config.settings.sync;
        let host = &self.config.host;
        let mut watch = Unheard.watch_progress();
        collect_named(&self.config.registry, &name, &mut *watch, |project| {
            let (exclude, include) = (texts(&rules.pull_exclude), texts(&rules.pull_include));
            let filter = Filter::new(&exclude, &include)?;
            Ok(match project {
                Some(project) => filter.without_ignored(ignore_rules(host, project, &[])?),
                None => filter,
            })
        })
    }

    /// All files of a session's workspace as they are now.
    pub(crate) fn collect_workspace(&self, id: &str) -> Result<CollectedChanges, Error> {
        let name = self.session_sandbox(id)?;
        let opened = self.open_sandbox(&name)?;
        let sandbox = opened.work.sandbox();
        let root = copied::root(sandbox);
        let root = Path::new(OsStr::from_bytes(&root));
        let mut watch = Unheard.watch_progress();
        let everything = || Ok::<_, Error>(Filter::new(&[], &[])?);
        Ok(outside::collect(sandbox, root, &mut *watch, everything)?.collected)
    }

    /// The changes as a patch that `git apply` takes.
    pub(crate) fn patch(&self, id: &str) -> Result<Vec<u8>, Error> {
        let collected = self.collect(id)?;
        let view = apply::view(&collected, collected.project.as_deref())?;
        let mut out = Bounded(Vec::new());
        match patch::write(&view.collected, Style::Exact, &mut out) {
            Ok(()) => Ok(out.0),
            Err(patch::PatchError::Write(_)) => Err(Fault::failed(
                Code::TooLarge,
                format!("the patch has more than {} MiB", MAX_PATCH_BYTES >> 20),
            )
            .remedy("ask for `format=json`, and for the files that matter")
            .into()),
            Err(error) => Err(patch_error(error, "the client")),
        }
    }

    /// The changes as a list.
    pub(crate) fn changes(&self, id: &str) -> Result<Value, Error> {
        let collected = self.collect(id)?;
        let view = apply::view(&collected, collected.project.as_deref())?;
        let mut list = changes_json(&view.collected.set);
        if let Value::Object(mut outcome) = outcome_json(&view.outcome) {
            list["conflicts"] = outcome.remove("conflicts").unwrap_or_default();
            list["merged"] = outcome.remove("merged").unwrap_or_default();
        }
        let stats = patch::stat(&view.collected)?;
        let stats = stats.iter().map(|stat| {
            serde_json::json!({
                "path": String::from_utf8_lossy(stat.path.as_bytes()),
                "insertions": stat.insertions,
                "deletions": stat.deletions,
                "is_binary": stat.binary.is_some(),
            })
        });
        list["files"] = stats.collect();
        Ok(list)
    }

    /// Takes them over.
    pub(crate) fn apply(
        &self,
        id: &str,
        typed: &[String],
        conflicts: Conflicts,
    ) -> Result<Value, Error> {
        self.check_apply(id)?;
        let typed: Vec<OsString> = typed.iter().map(OsString::from).collect();
        let wanted = paths(&typed, None)?;
        let mut collected = self.collect(id)?;
        collected.retain(&wanted);
        let to = destination(&collected)?;
        let target = ApplyTarget {
            to: &to,
            conflicts: match conflicts {
                Conflicts::Beside => Resolution::Beside,
                Conflicts::Theirs => Resolution::Theirs,
                Conflicts::Markers => Resolution::Markers,
            },
        };
        let mut watch = Unheard.watch_progress();
        let mut agree = |_: &apply::Review<'_>| Ok::<_, Error>(ReviewAnswer::Yes);
        let supervisor = &self.config.supervisor;
        let applied = apply::apply(collected, target, supervisor, &mut *watch, &mut agree)?;
        Ok(match applied {
            ApplyOutcome::Done(outcome) | ApplyOutcome::Part(outcome) => outcome_json(&outcome),
            ApplyOutcome::Declined(_) => Value::Null,
        })
    }
}

/// A buffer that refuses to grow without end.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_PATCH_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
