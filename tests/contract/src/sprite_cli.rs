//! A stand-in for the program `sprite`, which cannot be had here: it talks to a server with the service's contract.
//!
//! It is strict: words that its syntax does not have are refused, so that a call which the real program would not
//! take fails here too. It prints noise where the real one may.

use anyhow::{Context as _, Result, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;

/// First bytes of frames of an exec session.
mod stream_id {
    pub(super) const STDIN: u8 = 0;
    pub(super) const STDOUT: u8 = 1;
    pub(super) const STDERR: u8 = 2;
    pub(super) const EXIT: u8 = 3;
    pub(super) const STDIN_EOF: u8 = 4;
}

const CURRENT_HELP: &str =
    "Usage: sprite exec [-o ORG] [-s NAME] [--tty] [--no-port-forward] -- CMD ARGS...";
const OLD_HELP: &str = "Usage: sprite exec NAME CMD ARGS...";
/// Most bytes of input in one frame.
const CHUNK_BYTES: usize = 32 << 10;

/// The forms of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `sprite exec -s NAME --no-port-forward -- CMD`.
    Current,
    /// `sprite exec NAME CMD`.
    Old,
}

impl Form {
    /// The form that goes by a name of the program: `sprite`, or `sprite-old`.
    pub(crate) fn of_program(name: &str) -> Option<Self> {
        match name {
            "sprite" => Some(Self::Current),
            "sprite-old" => Some(Self::Old),
            _ => None,
        }
    }
}

/// Runs one call; returns its exit code.
pub(crate) async fn run(form: Form, words: &[String]) -> u8 {
    match act(form, words).await {
        Ok(code) => code,
        Err(error) => {
            // A closed standard error has no reader.
            let _ = writeln!(std::io::stderr(), "Error: {error:#}");
            1
        }
    }
}

async fn act(form: Form, words: &[String]) -> Result<u8> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let help = match form {
        Form::Current => CURRENT_HELP,
        Form::Old => OLD_HELP,
    };
    match (form, &words[..]) {
        (_, ["exec", "--help"]) => say(help)?,
        (Form::Current, ["create", "--skip-console", name]) | (Form::Old, ["create", name]) => {
            let body = serde_json::json!({ "name": name }).to_string();
            request("POST", "/v1/sprites", &body)?;
            say(&format!("Created sprite {name}"))?;
        }
        (Form::Current, ["list", "--prefix", prefix]) => {
            for name in names()?.iter().filter(|name| name.starts_with(prefix)) {
                say(name)?;
            }
            say("\nRun `sprite use NAME` to choose one.")?;
        }
        (Form::Old, ["list", "--json"]) => {
            let entries: Vec<_> = names()?
                .into_iter()
                .map(|name| serde_json::json!({ "name": name, "status": "warm" }))
                .collect();
            say(&serde_json::Value::from(entries).to_string())?;
        }
        (Form::Current, ["destroy", "--force", name]) | (Form::Old, ["delete", name]) => {
            request("DELETE", &format!("/v1/sprites/{name}"), "")?;
        }
        (Form::Current, ["exec", "-s", name, "--no-port-forward", "--", command @ ..])
        | (Form::Old, ["exec", name, command @ ..])
            if !command.is_empty() =>
        {
            return exec(name, command).await;
        }
        _ => bail!("unknown command or flag: {}", words.join(" ")),
    }
    Ok(0)
}

fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("cannot print")
}

/// Address without its scheme, and the token.
fn access() -> Result<(String, String)> {
    let url = std::env::var("SPRITES_API_URL").context("SPRITES_API_URL is not set")?;
    let address = url
        .strip_prefix("http://")
        .context("the address is no http")?;
    let token = std::env::var("SPRITE_TOKEN");
    let token = token.context("not authenticated, run `sprite login`")?;
    Ok((address.trim_end_matches('/').to_owned(), token))
}

/// Sends a request; returns the body of an answer that is a success.
fn request(method: &str, path: &str, body: &str) -> Result<String> {
    let (address, token) = access()?;
    let mut stream = TcpStream::connect(&address).context("cannot reach the service")?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    match status {
        "200" | "201" | "202" | "204" => Ok(body.to_owned()),
        "401" | "403" => bail!("authentication failed: the service answered {status}"),
        _ => bail!("the service answered {status}: {body}"),
    }
}

fn names() -> Result<Vec<String>> {
    let body = request("GET", "/v1/sprites?max_results=50", "")?;
    let page: serde_json::Value = serde_json::from_str(&body)?;
    let sprites = page["sprites"].as_array().cloned().unwrap_or_default();
    let names = sprites.iter().filter_map(|one| one["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// Runs a command in a machine, with the standard streams of this process.
async fn exec(name: &str, command: &[&str]) -> Result<u8> {
    let (address, token) = access()?;
    let words: Vec<String> = command.iter().map(|word| format!("cmd={word}")).collect();
    let url = format!(
        "ws://{address}/v1/sprites/{name}/exec?{}&stdin=true&tty=false",
        words.join("&")
    );
    let mut request = url.into_client_request()?;
    let bearer = HeaderValue::try_from(format!("Bearer {token}"))?;
    request.headers_mut().insert("Authorization", bearer);
    let stream = tokio::net::TcpStream::connect(&address)
        .await
        .context("cannot reach the service")?;
    let (socket, _) = client_async(request, stream).await.map_err(|error| {
        let text = error.to_string();
        let is_refused = text.contains("401") || text.contains("403");
        let what = if is_refused {
            "authentication failed"
        } else {
            "no session"
        };
        anyhow::anyhow!("{what}: {text}")
    })?;
    let (mut to_service, mut from_service) = socket.split();
    let sending = tokio::spawn(async move {
        let mut input = tokio::io::stdin();
        let mut chunk = vec![0; CHUNK_BYTES + 1];
        chunk[0] = stream_id::STDIN;
        while let Ok(count @ 1..) = input.read(&mut chunk[1..]).await {
            let frame = Message::Binary(chunk[..=count].to_vec().into());
            if to_service.send(frame).await.is_err() {
                return;
            }
        }
        // The service may have ended the session meanwhile.
        let end = vec![stream_id::STDIN_EOF];
        let _ = to_service.send(Message::Binary(end.into())).await;
        std::future::pending::<()>().await;
    });
    let (mut output, mut errors) = (tokio::io::stdout(), tokio::io::stderr());
    let code = loop {
        let message = from_service.next().await;
        let Some(Ok(message)) = message else {
            bail!("the connection to the service was lost");
        };
        let Message::Binary(frame) = message else {
            continue;
        };
        match frame.split_first() {
            Some((&stream_id::STDOUT, bytes)) => {
                output.write_all(bytes).await?;
                output.flush().await?;
            }
            Some((&stream_id::STDERR, bytes)) => errors.write_all(bytes).await?,
            Some((&stream_id::EXIT, bytes)) => break bytes.first().copied().unwrap_or(1),
            _ => {}
        }
    };
    sending.abort();
    Ok(code)
}
