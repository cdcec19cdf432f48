//! What a sandbox has outside its workspace, fetched over the wire: there is nothing to compare it with,
//! so all of it is new, and a file the destination has already is a conflict unless it is the same.

use super::Taken;
use crate::cmd::{Cx, name};
use crate::exit::CommandError;
use glovebox_proto::{Code, Fault, FileKind};
use glovebox_workspace::copy::{self, Copied, Place};
use glovebox_workspace::{Filter, Quota, RelPath, Stage, SyncError, Watch};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Fetches a directory with what `asked` takes of it, or one file; `from` is absolute and clean.
pub(crate) fn collect(
    cx: &Cx,
    asked: &super::Asked<'_>,
    from: &Path,
    watch: &mut Watch<'_>,
) -> Result<Taken, CommandError> {
    let sandbox = cx.user_registry()?.connect(&name(asked.name)?)?;
    let failed = |fault| SyncError::pull(Stage::Collect, fault);
    let kind = sandbox
        .stat(from.as_os_str().as_bytes(), true)
        .map_err(failed)?
        .kind;
    // The one file, if it is one.
    let mut only = None;
    let (root, filter, quota) = match (kind, from.parent(), from.file_name()) {
        (FileKind::Directory, ..) => {
            let filter = super::filter(cx, None, asked)?;
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
            (parent, just(text)?, quota)
        }
        _ => return Err(failed(odd(from, "it is neither a directory nor a file")).into()),
    };
    let place = Place {
        sandbox: &sandbox,
        root: root.as_os_str().as_bytes(),
        packing: super::copied::packing(&sandbox),
    };
    let source = Copied {
        manifest: None,
        project: None,
        hidden: &[],
        spool_dir: sandbox.dir(),
    };
    let collected = copy::collect(&place, &source, &filter, &quota, watch)?;
    let mut taken = Taken {
        collected,
        base: None,
        project: None,
        is_whole: false,
        _frozen: None,
    };
    taken.retain(only.as_slice());
    Ok(taken)
}

/// Takes one file of a directory.
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
