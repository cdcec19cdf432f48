//! Builder of sources and mounts: binds, overlays over several layers, and the workspace.

use super::{HostResources, Idmap, MASK, PlanError, Source, Step, check_inside};
use crate::facts::HostFacts;
use glovebox_spec::seed::LIVE_OBJECTS_INSIDE;
use glovebox_spec::{Isolation, WORKSPACE, WorkspaceAccess};
use std::path::{Path, PathBuf};

/// Sources and steps of a plan under construction.
pub(super) struct Builder {
    pub(super) sources: Vec<Source>,
    pub(super) steps: Vec<Step>,
    pub(super) is_mapped: bool,
    /// First host id of this sandbox's range; the caller's own id if there is no range.
    pub(super) own_first: u32,
}

impl Builder {
    fn source(&mut self, path: &Path, is_recursive: bool, idmap: Idmap) -> usize {
        self.sources.push(Source {
            path: path.to_owned().into(),
            is_recursive,
            is_read_only: true,
            idmap: if self.is_mapped { idmap } else { Idmap::None },
        });
        self.sources.len() - 1
    }

    pub(super) fn bind(&mut self, source: &Path, target: &Path, idmap: Idmap) {
        let source = self.source(source, true, idmap);
        self.steps.push(Step::Bind {
            source,
            target: target.to_owned().into(),
        });
    }

    pub(super) fn overlay(
        &mut self,
        target: impl Into<PathBuf>,
        lowers: &[(&Path, Idmap)],
        layer: &str,
        is_read_only: bool,
    ) {
        let lowers = lowers
            .iter()
            .map(|(path, idmap)| self.source(path, false, *idmap))
            .collect();
        self.steps.push(Step::Overlay {
            target: target.into().into(),
            lowers,
            layer: layer.to_owned(),
            is_read_only,
        });
    }

    /// Returns the translation of the owners of a frozen layer whose range begins at `first_id`.
    /// Layers that this sandbox's own range wrote need none.
    pub(super) fn thaw(&self, first_id: Option<u32>) -> Idmap {
        match first_id {
            Some(first) if first != self.own_first => Idmap::Shift(first),
            _ => Idmap::None,
        }
    }

    pub(super) fn root(&mut self, place: &HostResources, skeleton: &Path, idmap: Idmap) {
        let mut lowers: Vec<(&Path, Idmap)> = place
            .frozen
            .iter()
            .filter_map(|frozen| Some((frozen.root.as_deref()?, self.thaw(frozen.first_id))))
            .collect();
        let machine = place.machine.as_deref();
        let generated = [skeleton].into_iter().chain(machine);
        lowers.extend(generated.map(|layer| (layer, idmap)));
        self.overlay("/", &lowers, "root", false);
    }

    pub(super) fn workspace(
        &mut self,
        spec: &Isolation,
        facts: &HostFacts,
        place: &HostResources,
    ) -> Result<(), PlanError> {
        let replaced = spec.replaced_in_workspace().map(|file| &file.path);
        let start_dir = Some(&spec.start_dir).filter(|path| !path.as_os_str().is_empty());
        let paths = spec.hidden.iter().chain(&spec.protected);
        for path in paths.chain(replaced).chain(start_dir) {
            check_inside(path)?;
        }
        if spec.workspace_access == WorkspaceAccess::Live {
            return self.live_workspace(spec, facts, place);
        }
        let mask = place.layers.join(MASK);
        let mut lowers: Vec<(&Path, Idmap)> = place
            .frozen
            .iter()
            .filter_map(|frozen| Some((frozen.workspace.as_deref()?, self.thaw(frozen.first_id))))
            .collect();
        lowers.extend(self.kept_in_workspace(spec, place));
        if let Some(seed) = &place.seed {
            lowers.push((&seed.git_dir, Idmap::Owner));
        }
        if let Some(project) = &spec.workspace {
            if spec.has_mask() {
                lowers.push((&mask, Idmap::Owner));
            }
            lowers.push((project, Idmap::Owner));
        }
        let is_read_only = spec.workspace_access == WorkspaceAccess::ReadOnly;
        self.overlay(WORKSPACE, &lowers, "workspace", is_read_only);
        Ok(())
    }

    /// Binds the objects for the git directories of the seed, read-only. The files belong to the
    /// user, so only the mount protects them.
    pub(super) fn git_objects(&mut self, place: &HostResources) {
        let Some(seed) = &place.seed else {
            return;
        };
        for (source, target) in seed.binds() {
            self.bind(source, Path::new(target), Idmap::Owner);
        }
        if seed.live_objects.is_some() {
            // Git follows the alternates of an alternate and would report the paths that the
            // sandbox does not show.
            self.steps.push(Step::Cover {
                target: Path::new(LIVE_OBJECTS_INSIDE)
                    .join("info/alternates")
                    .into(),
            });
        }
    }

    /// Binds the host's own directory, and binds its protected paths over it read-only.
    ///
    /// A mount point cannot be renamed or removed, but a directory above it can, and the mount
    /// moves along. So every directory between the workspace and a protected path becomes a mount
    /// point too.
    fn live_workspace(
        &mut self,
        spec: &Isolation,
        facts: &HostFacts,
        place: &HostResources,
    ) -> Result<(), PlanError> {
        let Some(project) = &spec.workspace else {
            return Err(PlanError::Invalid(
                "a live workspace needs a directory to show".to_owned(),
            ));
        };
        let mut show = |inside: &Path, is_read_only: bool| {
            let below = |path: &Path| {
                if inside.as_os_str().is_empty() {
                    path.to_owned()
                } else {
                    path.join(inside)
                }
            };
            let is_replaced = spec.replaced_in_workspace().any(|file| file.path == inside);
            let shown = if is_replaced {
                place.layers.join(MASK).join(inside)
            } else {
                below(project)
            };
            let source = self.source(&shown, true, Idmap::Owner);
            self.sources[source].is_read_only = is_read_only;
            self.steps.push(Step::Bind {
                source,
                target: below(Path::new(WORKSPACE)).into(),
            });
        };
        show(Path::new(""), false);
        let mut on_the_way: Vec<&Path> = facts
            .protected
            .iter()
            .flat_map(|path| path.ancestors().skip(1))
            .filter(|path| !path.as_os_str().is_empty())
            .filter(|path| !facts.protected.iter().any(|other| path.starts_with(other)))
            .collect();
        on_the_way.sort_unstable();
        on_the_way.dedup();
        for path in on_the_way {
            show(path, false);
        }
        for path in &facts.protected {
            show(path, true);
        }
        let covered = facts
            .covers
            .iter()
            .filter_map(|cover| cover.strip_prefix(project).ok())
            .filter(|path| !path.as_os_str().is_empty());
        // A file that cannot be bound read-only cannot be replaced either, so it is covered.
        let replaced = spec.replaced_in_workspace().map(|file| file.path.as_path());
        let unprotected = replaced.filter(|path| !facts.protected.iter().any(|held| held == path));
        let hidden = spec.hidden.iter().map(PathBuf::as_path);
        for path in hidden.chain(unprotected).chain(covered) {
            self.steps.push(Step::Cover {
                target: Path::new(WORKSPACE).join(path).into(),
            });
        }
        Ok(())
    }
}
