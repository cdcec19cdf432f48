//! The machine's own proxy, from the variables of the command that starts a sandbox.

use crate::note::Note;
use glovebox_egress::MachineProxy;
use glovebox_sandbox::SandboxSpec;
use glovebox_settings::Surroundings;
use glovebox_spec::Net;

/// Returns the machine's proxy if the network is `egress`, and notes about proxies that are not
/// used.
pub(super) fn find(net: Net, host: &Surroundings) -> (Option<MachineProxy>, Vec<Note>) {
    if net != Net::Egress {
        return (None, Vec::new());
    }
    let find = |name: &str| Some(host.var(name)?.to_string_lossy().into_owned());
    let (proxy, unused) = MachineProxy::from_variables(find);
    let note = |unused: glovebox_egress::UnusedProxy| Note {
        what: unused.to_string(),
        remedy: format!(
            "name an HTTP proxy in `{}` (`http://HOST:PORT`), or unset it",
            unused.variable.name()
        )
        .into(),
    };
    (proxy, unused.into_iter().map(note).collect())
}

/// Reads the machine's proxy again for a stored specification, because no file stores it.
pub fn renew_upstream(spec: &mut SandboxSpec, host: &Surroundings) {
    spec.upstream = find(spec.jail.net, host).0;
}
