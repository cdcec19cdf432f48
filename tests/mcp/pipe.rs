//! The plainest client: lines of JSON over the server's standard input and output.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use testkit::Person;

/// A server at the other end of two pipes. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
    /// What the server said about itself.
    pub(crate) instructions: String,
}

impl Pipe {
    /// Starts `glovebox mcp ARGS` and introduces itself.
    pub(crate) fn open(person: &Person, args: &str) -> Self {
        Self::open_as(person, args, &json!({}))
    }

    /// Starts `glovebox mcp ARGS`, to which nothing has been said yet.
    pub(crate) fn start(person: &Person, args: &str) -> Self {
        let mut call = person.line(&format!("mcp {args}"));
        call.command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = call.command.spawn().unwrap();
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            next: 0,
            instructions: String::new(),
        }
    }

    /// As [`Self::open`], as a client that can do this.
    pub(crate) fn open_as(person: &Person, args: &str, capabilities: &Value) -> Self {
        let mut pipe = Self::start(person, args);
        let mut introduction = introduction();
        introduction["capabilities"] = capabilities.clone();
        let answer = pipe.ask("initialize", &introduction);
        assert_eq!(
            answer["result"]["serverInfo"]["name"], "glovebox",
            "{answer}"
        );
        let instructions = answer["result"]["instructions"].as_str();
        instructions
            .unwrap_or_default()
            .clone_into(&mut pipe.instructions);
        pipe.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        pipe
    }

    /// Writes a message.
    pub(crate) fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Sends a request and gives its id.
    pub(crate) fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// The next message. Everything the server writes must be one.
    pub(crate) fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        if self.output.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        loop {
            let message = self.hear().unwrap();
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Calls a tool; its text, without the line of the first result about the sandbox.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> String {
        let answer = self.ask(
            "tools/call",
            &json!({ "name": tool, "arguments": arguments }),
        );
        let text = answer["result"]["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("{answer}"));
        let notice = text.find("[this is the sandbox ").unwrap_or(text.len());
        text[..notice].to_owned()
    }

    /// Closes the server's input, as a client does that is done.
    pub(crate) fn hang_up(&mut self) {
        self.input = None;
    }

    /// Waits for the end: its exit code and what it told.
    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
        while self.hear().is_some() {}
        let mut told = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        let _ = stderr.read_to_string(&mut told);
        (self.child.wait().unwrap().code(), told)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a client says first.
pub(crate) fn introduction() -> Value {
    json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    })
}
