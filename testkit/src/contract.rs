//! Servers with the contracts of services that sandboxes may run on (`glovebox-contract`), each as
//! a separate process.

use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running server. Dropping it ends the server and every process that its commands have left.
#[derive(Debug)]
pub struct ContractServer {
    child: Child,
    /// Address as `http://ADDRESS`, without a prefix.
    url: String,
}

impl ContractServer {
    /// Starts the server of `service` with further arguments.
    ///
    /// # Panics
    /// The server is not built, or does not print its address.
    #[expect(clippy::expect_used, reason = "a test cannot go on without")]
    pub fn start(service: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(program())
            .args([service, "--listen", "127.0.0.1:0", "--until-stdin-ends"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("its output is a pipe");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("the server says its address");
        let url = line
            .trim()
            .strip_prefix("listening on ")
            .map(ToOwned::to_owned);
        let url = url.expect("the first line is `listening on URL`");
        Self { child, url }
    }

    /// Returns the address as `http://HOST:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the id of the server's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the server, as a power failure of the machine would: its commands get no signal.
    pub fn kill(&mut self) {
        // Fails only if it has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a request; returns status and body of the response.
    ///
    /// # Panics
    /// The server does not respond.
    #[expect(clippy::expect_used, reason = "a test cannot go on without")]
    pub fn request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let address = self.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).expect("the server listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .expect("a socket has timeouts");
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("the server takes a request");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .expect("the server answers");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (status.expect("the answer has a status"), body.to_owned())
    }

    /// Sends a control request to the server, such as `POST /__contract/restart`; returns the body
    /// of the response.
    ///
    /// # Panics
    /// The response is not a success.
    pub fn control(&self, method: &str, path: &str, body: &str) -> String {
        let (status, answer) = self.request(method, path, body);
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    /// Returns the server's journal: `requests` by path, and `refusals`.
    ///
    /// # Panics
    /// The journal is not JSON.
    #[expect(clippy::expect_used, reason = "a test cannot go on without")]
    pub fn journal(&self) -> Value {
        serde_json::from_str(&self.control("GET", "/__contract/journal", ""))
            .expect("the journal is JSON")
    }
}

impl Drop for ContractServer {
    fn drop(&mut self) {
        // The server exits at the end of its input.
        drop(self.child.stdin.take());
        let ended = crate::census::wait_until(Duration::from_secs(10), || {
            self.child.try_wait().is_ok_and(|status| status.is_some())
        });
        if !ended {
            self.kill();
        }
    }
}

/// Installs a stand-in for the program `sprite` in a directory and returns its path. `is_old`
/// selects one that takes the name of a machine as a word. It talks to the server at
/// `SPRITES_API_URL`.
///
/// # Panics
/// The server is not built, or the directory cannot be written.
#[expect(clippy::expect_used, reason = "a test cannot go on without")]
pub fn install_sprite_cli(dir: &Path, is_old: bool) -> PathBuf {
    let name = if is_old { "sprite-old" } else { "sprite" };
    let path = dir.join(name);
    // A hard link fails across file systems; a copy must work, because another user may not reach
    // the place where it was built.
    if fs::hard_link(program(), &path).is_err() {
        fs::copy(program(), &path).expect("a directory that can be written");
    }
    path
}

/// Returns the program: `GLOVEBOX_TEST_CONTRACT`, else the one next to the binary under test.
///
/// # Panics
/// The program is not built.
fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("GLOVEBOX_TEST_CONTRACT") {
        return path.into();
    }
    let own = std::env::current_exe().unwrap_or_default();
    let found = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join("glovebox-contract"))
        .find(|path| path.is_file());
    assert!(
        found.is_some(),
        "there is no glovebox-contract beside {}: build it first \
         (`cargo build --package glovebox-contract`), or name it in GLOVEBOX_TEST_CONTRACT",
        own.display()
    );
    found.unwrap_or_default()
}
