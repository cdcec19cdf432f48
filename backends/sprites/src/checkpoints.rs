//! Checkpoints of a Sprite's files, which the service keeps.

use crate::driver::{Sprites, given_name, machine_name};
use crate::service::Service;
use crate::{Client, ServiceCheckpoint};
use glovebox_proto::{Code, Fault, Setting};
use glovebox_sandbox::Name;
use glovebox_sandbox::backend::{ServiceCheckpoints, ServiceCx};

impl ServiceCheckpoints for Sprites {
    fn create(&self, cx: &ServiceCx<'_>, name: &Name, comment: &str) -> Result<String, Fault> {
        api(cx)?.checkpoint(&machine_name(cx, name)?, comment, cx.deadline)
    }

    fn check(&self, cx: &ServiceCx<'_>, name: &Name, id: &str) -> Result<(), Fault> {
        if let Some(given) = given_name(cx.spec) {
            return Err(Fault::refused(
                Code::Unsupported,
                format!("the Sprite `{given}` was there before, and is used as it is: it is not restored"),
            )
            .remedy("restore it with the service's own program, while no sandbox works in it"));
        }
        let found = api(cx)?.checkpoints(&machine_name(cx, name)?, cx.deadline)?;
        match found.iter().find(|one| one.id == id) {
            None => Err(Fault::failed(
                Code::NotFound,
                format!("the service no longer has the checkpoint `{id}`"),
            )
            .remedy("choose another one of `glovebox checkpoints NAME`")),
            Some(found) => check_health(found),
        }
    }

    fn restore(&self, cx: &ServiceCx<'_>, name: &Name, id: &str) -> Result<(), Fault> {
        let restored = api(cx)?.restore(&machine_name(cx, name)?, id, cx.deadline);
        restored.map_err(|fault| match fault.code {
            // A stream that breaks off says nothing about the files.
            Code::Protocol => fault.retryable(),
            _ => fault,
        })
    }
}

/// Refuses a checkpoint that the service itself calls broken.
fn check_health(checkpoint: &ServiceCheckpoint) -> Result<(), Fault> {
    match checkpoint.health.as_deref() {
        None | Some("") => Ok(()),
        Some(health) => Err(Fault::failed(
            Code::Unsupported,
            format!(
                "the service says that the checkpoint `{}` is not in order: {}",
                checkpoint.id,
                glovebox_carrier::show_message(health.as_bytes())
            ),
        )
        .remedy("choose another one of `glovebox checkpoints NAME`")),
    }
}

/// Opens the service's interface.
///
/// # Errors
/// `unsupported` if the spec leads there by the service's program.
fn api(cx: &ServiceCx<'_>) -> Result<Client, Fault> {
    match Service::open(cx.spec)? {
        Service::Api(client) => Ok(client),
        Service::Cli(_) => Err(Fault::refused(
            Code::Unsupported,
            "checkpoints are not made through the program `sprite`",
        )
        .remedy([
            "use the service without the program: ".into(),
            Setting::Carrier.of("websocket"),
        ])),
    }
}
