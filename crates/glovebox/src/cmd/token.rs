//! `glovebox token`: the users that may access `glovebox serve`.

use super::{Cx, age};
use crate::args::{TokenAction, TokenArgs, TokenCreateArgs, TokenListArgs, TokenRevokeArgs};
use crate::exit::CommandResult;
use crate::render::{self, plural, table};
use glovebox_server::{Scope, Scopes, TokenStore};
use glovebox_session::host::now_unix_ms;
use serde_json::json;

/// Runs the action of the command line.
pub(crate) fn run(cx: &Cx, args: &TokenArgs) -> CommandResult {
    let store = TokenStore::open(&cx.state_dir(&cx.settings(None)?)?)?;
    match &args.action {
        TokenAction::Create(args) => create(cx, &store, args),
        TokenAction::List(args) => list(cx, &store, args),
        TokenAction::Revoke(args) => revoke(cx, &store, args),
    }
}

fn create(cx: &Cx, store: &TokenStore, args: &TokenCreateArgs) -> CommandResult {
    let scopes = if args.scope.is_empty() {
        Scopes::new([Scope::Run])
    } else {
        Scopes::new(args.scope.iter().copied())
    };
    let now = now_unix_ms();
    let expires = args.expires.and_then(|span| span.0).map(|ms| now + ms);
    let token = store.create(&args.name, &scopes, expires, now)?;
    if args.json {
        let data = json!({
            "name": args.name,
            "token": token.reveal(),
            "scopes": scopes.words(),
            "expires_unix_ms": expires,
        });
        render::print(render::envelope(true, "the token is made", &data))?;
        return Ok(0);
    }
    render::print(format_args!("{}\n", token.reveal()))?;
    cx.talk.note(format_args!(
        "{} may {}; the token is not shown again",
        args.name,
        scopes.words().join(", ")
    ));
    Ok(0)
}

fn list(cx: &Cx, store: &TokenStore, args: &TokenListArgs) -> CommandResult {
    let tokens = store.list()?;
    if args.json {
        let message = plural(tokens.len(), "token", "tokens");
        let data = json!({ "tokens": tokens });
        render::print(render::envelope(true, &message, &data))?;
        return Ok(0);
    }
    if tokens.is_empty() {
        cx.talk
            .note("there are no tokens; `glovebox token create USER` makes one");
        return Ok(0);
    }
    let now = now_unix_ms();
    let rows: Vec<Vec<String>> = tokens
        .iter()
        .map(|token| {
            let ends = match token.expires_unix_ms {
                None => "never".to_owned(),
                Some(at) if at <= now => "has ended".to_owned(),
                Some(at) => format!("in {} h", (at - now).div_ceil(3_600_000)),
            };
            vec![
                token.name.clone(),
                token.scopes.join(","),
                age(token.created_unix_ms),
                ends,
            ]
        })
        .collect();
    render::print(table(&["USER", "SCOPES", "AGE", "ENDS"], &rows))?;
    Ok(0)
}

fn revoke(cx: &Cx, store: &TokenStore, args: &TokenRevokeArgs) -> CommandResult {
    for name in &args.names {
        store.revoke(name)?;
        cx.talk
            .note(format_args!("the token of {name} is worthless now"));
    }
    Ok(0)
}
