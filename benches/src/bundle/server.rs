//! `glovebox serve` with one bundle, and one connection to it.

use crate::http::{Connection, place_of};
use crate::running::Running;
use crate::world::World;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::process::Stdio;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A server and a connection to it. The server ends when this is dropped.
pub(crate) struct Client {
    _child: Running,
    connection: Option<Connection>,
    bundle: String,
}

impl Client {
    /// Serves a bundle whose one tool has this code.
    pub(crate) fn start(world: &World, code: &str) -> Result<Self> {
        let mut command = world.glovebox()?;
        command
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--no-toolchains",
                "--max-requests-per-second",
                "0",
            ])
            .env("GLOVEBOX_SERVER_TOKEN", TOKEN)
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let place = place_of(&mut child);
        let mut client = Self {
            _child: Running(child),
            connection: None,
            bundle: String::new(),
        };
        let mut connection = Connection::open(&place?, TOKEN)?;
        let tool = code.replacen("export default", "const execute =", 1);
        let text = format!(
            "import {{ tool }} from \"ai\";\nimport {{ z }} from \"zod\";\n{tool}\n\
             export const words = tool({{ description: \"t\", inputSchema: z.object({{ words: z.array(z.string()) }}), execute }});\n"
        );
        let (_, stored) = connection.ask("PUT", "/api/bundles", "text/javascript", &text)?;
        let stored: Value = serde_json::from_str(&stored)?;
        stored["hash"]
            .as_str()
            .with_context(|| stored.to_string())?
            .clone_into(&mut client.bundle);
        client.connection = Some(connection);
        Ok(client)
    }

    pub(crate) fn call(&mut self, input: &Value) -> Result<Value> {
        let body =
            json!({ "bundle": self.bundle, "tool": "words", "arguments": input }).to_string();
        let connection = self.connection.as_mut().context("there is no connection")?;
        let (_, answer) = connection.ask("POST", "/api/tool", "application/json", &body)?;
        let answer: Value = serde_json::from_str(&answer)?;
        match answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => anyhow::bail!("{answer}"),
        }
    }
}
