//! The two transports to the service: its API, and its own program.

use crate::cli::Cli;
use crate::{BaseUrl, Client, DEFAULT_BASE_URL, TokenSource};
use glovebox_carrier::options::BASE_URL;
use glovebox_proto::{Code, Fault, Setting};
use glovebox_sandbox::{BackendOption, Credential, SandboxSpec};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Option with the file that holds the token.
pub(crate) const TOKEN_FILE: BackendOption = BackendOption {
    name: "sprites.token_file",
    flag: "sprites-token-file",
    variable: "GLOVEBOX_SPRITES_TOKEN_FILE",
    value: "FILE",
    help: "With `--backend sprites`: the file that holds the token, where SPRITES_TOKEN is not set",
    meaning: "with `backend = \"sprites\"`: the file that holds the token, where `SPRITES_TOKEN` and `SPRITE_TOKEN` are \
              not set",
    is_path: true,
    check: |_| Ok(()),
};

/// Name of the general setting for the transport.
const CARRIER: &str = "carrier";

/// Transport to the service.
#[derive(Debug, Clone)]
pub(crate) enum Service {
    /// REST and WebSocket.
    Api(Client),
    /// The program `sprite`.
    Cli(Arc<Cli>),
}

impl Service {
    /// Opens the transport that a spec names; the API by default.
    pub(crate) fn open(spec: &SandboxSpec) -> Result<Self, Fault> {
        Ok(if takes_cli(spec)? {
            Self::Cli(Cli::find(spec)?)
        } else {
            Self::Api(Client::new(base_url(spec)?, token_source(spec)?)?)
        })
    }

    /// Returns true if there is a Sprite with this name.
    pub(crate) fn has(&self, name: &str, deadline: Instant) -> Result<bool, Fault> {
        match self {
            Self::Api(client) => Ok(client.get(name, deadline)?.is_some()),
            Self::Cli(cli) => cli.has(name, deadline),
        }
    }

    /// Destroys a Sprite. Succeeds if there is none.
    pub(crate) fn destroy(&self, name: &str, deadline: Instant) -> Result<(), Fault> {
        match self {
            Self::Api(client) => client.destroy(name, deadline).map(drop),
            Self::Cli(cli) => cli.destroy(name, deadline),
        }
    }
}

/// Returns true if a spec asks for the program.
///
/// # Errors
/// `invalid-argument` for an unknown transport.
pub(crate) fn takes_cli(spec: &SandboxSpec) -> Result<bool, Fault> {
    let words: Vec<&str> = spec.option(CARRIER).iter().map(String::as_str).collect();
    match words[..] {
        [] | ["websocket"] => Ok(false),
        ["cli"] => Ok(true),
        _ => Err(Fault::failed(
            Code::InvalidArgument,
            "the way to a Sprite is `websocket` or `cli`, and no other command leads there",
        )
        .remedy(["choose ".into(), Setting::Carrier.of("websocket")])),
    }
}

/// Describes the transport for a list.
pub(crate) fn place(spec: &SandboxSpec) -> String {
    let place = spec.option(BASE_URL.name).first();
    match (takes_cli(spec), place) {
        (Ok(true), Some(place)) => format!("by the program `sprite`, at {place}"),
        (Ok(true), None) => "by the program `sprite`".to_owned(),
        (_, place) => format!("at {}", place.map_or(DEFAULT_BASE_URL, String::as_str)),
    }
}

/// Returns the address of the service that a spec names, or the default.
pub(crate) fn base_url(spec: &SandboxSpec) -> Result<BaseUrl, Fault> {
    let given = spec.option(BASE_URL.name).first();
    BaseUrl::parse(given.map_or(DEFAULT_BASE_URL, String::as_str))
}

/// Returns the source of the token: the spec's credential at first; after a refusal, the present
/// content of the file.
fn token_source(spec: &SandboxSpec) -> Result<TokenSource, Fault> {
    let Some(credential) = spec.credential.clone() else {
        return Err(
            Fault::refused(Code::NotAuthenticated, "there is no token for Sprites").remedy(
                "set SPRITES_TOKEN, or name a file that holds it with `sprites.token_file`",
            ),
        );
    };
    let file = spec.option(TOKEN_FILE.name).first().map(PathBuf::from);
    let was_given = AtomicBool::new(false);
    Ok(Arc::new(move || {
        let is_first = !was_given.swap(true, Ordering::Relaxed);
        let file = file.as_ref().filter(|_| !is_first);
        let renewed = file.and_then(|file| fs::read_to_string(file).ok());
        let renewed = renewed.and_then(|text| Credential::new(&text).ok());
        Ok(renewed.unwrap_or_else(|| credential.clone()))
    }))
}
