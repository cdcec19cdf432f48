//! `glovebox mcp`: serves the tools to other agents.

use super::{
    Cx, SharedTerminal, given_token::given_token, listening::cannot_listen, run::supervisor,
};
use crate::args::McpArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render::say;
use glovebox_mcp::server::{self, HttpOptions, Token};
use glovebox_proto::{Code, Fault};
use glovebox_session::mcp_clients::{McpClients, USUAL_WAIT};
use glovebox_settings::Settings;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const USUAL_CLIENTS: u16 = 16;
const USUAL_IDLE_MS: u64 = 30 * 60 * 1000;
const TOKEN_VARIABLE: &str = "GLOVEBOX_MCP_TOKEN";

/// Serves until the client disconnects or a signal ends the process.
pub(crate) fn run(cx: &Cx, args: &McpArgs) -> CommandResult {
    let (project, settings) = cx.tool_settings(&args.own, args.toolset.as_deref())?;
    let clients = Arc::new(clients(cx, args, project, settings)?);
    let Some(addr) = args.http else {
        server::serve_stdio(clients)?;
        return Ok(0);
    };
    if args.no_token && cx.host.var(TOKEN_VARIABLE).is_some() {
        return Err(CommandError::usage(
            format!("--no-token lets everybody in, and ${TOKEN_VARIABLE} is set"),
            format!("leave --no-token out, or unset {TOKEN_VARIABLE}"),
        ));
    }
    let given = given_token(cx, args.token_file.as_deref(), TOKEN_VARIABLE, Token::parse)?;
    let made = if given.is_none() && addr.ip().is_loopback() && !args.no_token {
        Some(make_token()?)
    } else {
        None
    };
    let options = HttpOptions {
        token: given.or(made.as_ref().map(|(_, token)| token.clone())),
        allowed_hosts: args.allow_host.clone(),
        allowed_origins: args.allow_origin.clone(),
        max_sessions: usize::from(args.max_clients.unwrap_or(USUAL_CLIENTS).max(1)),
        idle: Duration::from_millis(args.idle.and_then(|span| span.0).unwrap_or(USUAL_IDLE_MS)),
    };
    server::check_reach(addr, &options)?;
    let listener =
        TcpListener::bind(addr).map_err(|error| cannot_listen(addr, &error, "--http"))?;
    let talk = cx.talk;
    if options.token.is_none() {
        talk.warning(format_args!(
            "there is no token: every program of this machine can use the tools"
        ));
    }
    server::serve_http(clients, listener, &options, |addr| {
        // Printed with --quiet too: with port 0 no other output tells the address.
        say(format_args!("glovebox: serving at http://{addr}/mcp"));
        if let Some((text, _)) = &made {
            say(format_args!(
                "glovebox: clients show `Authorization: Bearer {text}`, made for this run; set \
                 ${TOKEN_VARIABLE} for one that stays"
            ));
        }
    })?;
    Ok(0)
}

/// Creates the clients' factory. Checks that sandboxes can start before any client connects.
fn clients(
    cx: &Cx,
    args: &McpArgs,
    project: PathBuf,
    settings: Settings,
) -> Result<McpClients, CommandError> {
    let registry = Arc::new(cx.registry(&settings)?);
    let longest_wait = args.max_wait.and_then(|span| span.0);
    let clients = McpClients::new(
        cx.host.clone(),
        project,
        settings,
        registry,
        supervisor()?,
        Arc::new(SharedTerminal::new(cx)),
        longest_wait.map_or(USUAL_WAIT, Duration::from_millis),
    )?
    .with_prefix(args.prefix.clone().unwrap_or_default());
    Ok(match &args.sandbox {
        Some(name) => clients.in_sandbox(&super::name(name)?)?,
        None if args.http.is_none() => clients.with_first(!args.fresh)?,
        None => clients,
    })
}

/// Creates a random token, and its text to print for the user.
fn make_token() -> Result<(String, Token), CommandError> {
    let mut bytes = [0_u8; 32];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    if filled != Ok(bytes.len()) {
        let fault = Fault::failed(
            Code::Unavailable,
            "the kernel has no random bytes for a token",
        )
        .remedy(format!("set ${TOKEN_VARIABLE}"));
        return Err(fault.into());
    }
    // The hash keeps the entropy of the bytes, in printable form.
    let text = blake3::hash(&bytes).to_hex().to_string();
    let token = Token::parse(&text).map_err(|error| Fault::failed(Code::Internal, error))?;
    Ok((text, token))
}
