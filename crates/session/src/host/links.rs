//! Links of a project that lead outside to paths that the sandbox does not show, as `npm link`
//! creates them.

use crate::note::Note;
use glovebox_proto::{AdvicePart, Remedy, Setting};
use glovebox_settings::Surroundings;
use std::path::{Path, PathBuf};

/// Maximum number of links that are named.
const NAMED: usize = 3;

/// Returns a note about links that dangle inside although they have a target on the host. `links`
/// are relative to the project. `is_visible` returns true for host paths that are shown inside.
///
/// A link to the home directory, or to a directory that contains it or the project, is omitted: the
/// hint must not advise to show those.
pub fn tell_links(
    host: &Surroundings,
    project: &Path,
    links: &[PathBuf],
    is_visible: impl Fn(&Path) -> bool,
) -> Option<Note> {
    let mut leading_out = Vec::new();
    for link in links {
        let Ok(target) = project.join(link).canonicalize() else {
            continue;
        };
        let holds = |path: &Path| path.starts_with(&target);
        let is_told = !target.starts_with(project)
            && !holds(project)
            && !host.home().is_some_and(holds)
            && !is_visible(&target);
        if is_told {
            leading_out.push((link, target));
        }
    }
    let named: Vec<String> = leading_out
        .iter()
        .take(NAMED)
        .map(|(link, target)| format!("{} (to {})", link.display(), target.display()))
        .collect();
    let rest = leading_out.len().saturating_sub(named.len());
    let more = match rest {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    let lead = match leading_out.len() {
        1 => "a link leads".to_owned(),
        count => format!("{count} links lead"),
    };
    let mut targets: Vec<&PathBuf> = leading_out
        .iter()
        .take(NAMED)
        .map(|(_, target)| target)
        .collect();
    targets.dedup();
    let mut advice: Vec<AdvicePart> = Vec::new();
    for (at, target) in targets.iter().enumerate() {
        if at > 0 {
            advice.push(" ".into());
        }
        advice.push(Setting::Grant.of(target.display().to_string()));
    }
    advice.push(
        if targets.len() == 1 {
            " shows it"
        } else {
            " show them"
        }
        .into(),
    );
    (!named.is_empty()).then(|| Note {
        what: format!(
            "{lead} out of the project and nowhere inside: {}{more}",
            named.join(", ")
        ),
        remedy: Remedy::advice(advice),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_that_lead_nowhere_inside_are_named_with_the_way_to_show_them() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let project = home.join("project");
        fs::create_dir_all(project.join("inside")).unwrap();
        for name in ["lib", "seen"] {
            fs::create_dir(home.join(name)).unwrap();
        }
        let target = |name: &str| match name {
            "gone" => home.join("missing"),
            "home" => home.clone(),
            "inside-link" => project.join("inside"),
            name => home.join(name),
        };
        let names = ["gone", "home", "inside-link", "lib", "seen"];
        for name in names {
            symlink(target(name), project.join(name)).unwrap();
        }
        let host = Surroundings::fixed(&home, &home, &[]);
        let tell = |names: &[&str]| {
            let links: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            tell_links(&host, &project, &links, |path| path.ends_with("seen"))
        };
        let note = tell(&names).unwrap();
        let lib = home.join("lib");
        let what = format!(
            "a link leads out of the project and nowhere inside: lib (to {})",
            lib.display()
        );
        assert_eq!(note.what, what);
        assert!(
            note.remedy.to_string().contains(lib.to_str().unwrap()),
            "{note:?}"
        );
        assert_eq!(tell(&["gone", "home", "inside-link", "seen"]), None);
    }
}
