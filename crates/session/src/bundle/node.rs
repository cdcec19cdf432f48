//! Locations of Node for the engine `node`: this machine's programs, and version managers in the
//! user's home.

use crate::host;
use glovebox_runner::{Engine, NodeView};
use glovebox_settings::{Settings, Surroundings};
use glovebox_spec::RootFs;

/// Version managers that install Node in a home directory.
const MANAGERS: [&str; 5] = ["nvm", "fnm", "volta", "asdf", "mise"];

/// Returns what sandboxes of the engine `node` show; empty if it is not among `engines`.
pub fn node_view(engines: &[Engine], settings: &Settings, surroundings: &Surroundings) -> NodeView {
    if !engines.contains(&Engine::Node) {
        return NodeView::default();
    }
    let rootfs = RootFs::Host;
    let mut grants = Vec::new();
    if settings.toolchains.value {
        let found = host::find_toolchains(surroundings, |path| host::is_shown(&rootfs, path));
        grants.extend(
            found
                .into_iter()
                .filter(|toolchain| MANAGERS.contains(&toolchain.name))
                .flat_map(|toolchain| toolchain.grants),
        );
    }
    NodeView {
        path: host::visible_path(surroundings, &rootfs, &grants, None),
        grants,
    }
}
