//! Files outside of the workspace, fetched over the link. There is no base to compare with, so all
//! of them are new, and one that differs from an existing file of the destination is a conflict.

use super::SandboxChanges;
use crate::Error;
use glovebox_proto::{Code, Fault, FileKind};
use glovebox_sandbox::Sandbox;
use glovebox_workspace::copy::{self, CopyInputs, SandboxRoot};
use glovebox_workspace::{Filter, Quota, RelPath, Stage, SyncError, Watch};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Fetches a directory, filtered by `filter`, or one file. `from` is absolute and without `..`.
///
/// # Errors
/// Those of `filter`; the path is neither a directory nor a file, or cannot be fetched.
pub fn collect<E: From<Error>>(
    sandbox: &Sandbox,
    from: &Path,
    watch: &mut Watch<'_>,
    filter: impl FnOnce() -> Result<Filter, E>,
) -> Result<SandboxChanges, E> {
    let failed = |fault| E::from(SyncError::pull(Stage::Collect, fault).into());
    let kind = sandbox
        .stat(from.as_os_str().as_bytes(), true)
        .map_err(failed)?
        .kind;
    // Path of the single file, if `from` is a file.
    let mut only = None;
    let (root, filter, quota) = match (kind, from.parent(), from.file_name()) {
        (FileKind::Directory, ..) => {
            let filter = filter()?;
            (from, filter, Quota::default())
        }
        (FileKind::File, Some(parent), Some(file)) => {
            let path = RelPath::new(file.as_bytes()).map_err(|error| failed(odd(from, error)))?;
            let text = file
                .to_str()
                .ok_or_else(|| failed(odd(from, "its name is not UTF-8: name its directory")))?;
            only = Some(path);
            let quota = Quota {
                max_depth: 1,
                ..Quota::default()
            };
            (parent, just(text).map_err(failed)?, quota)
        }
        _ => return Err(failed(odd(from, "it is neither a directory nor a file"))),
    };
    let place = SandboxRoot {
        sandbox,
        root: root.as_os_str().as_bytes(),
        packing: super::copied::packing(sandbox),
    };
    let source = CopyInputs {
        manifest: None,
        project: None,
        git_dirs: &[],
        hidden: &[],
        spool_dir: sandbox.dir(),
    };
    let collected = copy::collect(&place, &source, &filter, &quota, watch)
        .map_err(|error| E::from(error.into()))?;
    let mut taken = SandboxChanges {
        collected,
        base: None,
        project: None,
        is_whole: false,
        _frozen: None,
    };
    taken.retain(only.as_slice());
    Ok(taken)
}

/// Returns a filter for one file of a directory.
fn just(name: &str) -> Result<Filter, Fault> {
    let escaped: String = name.chars().flat_map(|char| ['\\', char]).collect();
    Filter::new(&["/*".to_owned()], &[format!("/{escaped}")])
}

fn odd(path: &Path, why: impl std::fmt::Display) -> Fault {
    Fault::failed(
        Code::InvalidArgument,
        format!("cannot pull {}: {why}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn just_one_file_is_taken_whatever_it_is_called() {
        for name in ["plain", "*", "a b ", " [x]", "#x", "!x", "x\\", "ä?"] {
            let filter = just(name).unwrap();
            assert!(
                filter.takes(&RelPath::new(name).unwrap(), false),
                "{name:?}"
            );
            for other in ["other", "x", "ab"] {
                assert!(
                    !filter.takes(&RelPath::new(other).unwrap(), false),
                    "{name:?}"
                );
            }
        }
    }
}
