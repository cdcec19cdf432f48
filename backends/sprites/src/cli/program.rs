//! Calls of the program `sprite`.

use super::{PROGRAM, SYNTAX, Syntax, listing};
use glovebox_carrier::options::BASE_URL;
use glovebox_carrier::show_message;
use glovebox_proto::{Code, Fault, Setting};
use glovebox_sandbox::{Credential, SandboxSpec};
use rustix::fs::{Access, access};
use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Name of the program.
const NAME: &str = "sprite";
/// Maximum number of bytes read from an output.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;
/// Interval between two checks for the program's exit.
const END_PAUSE: Duration = Duration::from_millis(10);
/// Texts by which the program reports that it is not logged in.
const AUTHENTICATION: [&str; 5] = [
    "authenticat",
    "unauthorized",
    "logged in",
    "please log in",
    "sprite login",
];

/// The program, with its syntax and environment.
#[derive(Clone)]
pub struct Cli {
    program: PathBuf,
    syntax: Syntax,
    env: Vec<(String, String)>,
    token: Option<Credential>,
}

impl Cli {
    /// Finds the program for a spec: the one that the user names, else the first with its name in
    /// `PATH`.
    ///
    /// # Errors
    /// `cli-not-found`; `invalid-argument` for an unknown syntax.
    pub fn find(spec: &SandboxSpec) -> Result<Arc<Self>, Fault> {
        let variable = |wanted: &str| {
            let found = spec.jail.env.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone())
        };
        let path = variable("PATH").unwrap_or_default();
        let program = match spec.option(PROGRAM.name).first() {
            Some(given) => Some(PathBuf::from(given)).filter(|path| is_program(path)),
            None => std::env::split_paths(&path)
                .map(|dir| dir.join(NAME))
                .find(|path| path.is_absolute() && is_program(path)),
        };
        let program = program.ok_or_else(|| match spec.option(PROGRAM.name).first() {
            Some(given) => not_found(format!("{given} is no program that can be started")),
            None => not_found(format!("there is no program `{NAME}` in PATH")),
        })?;
        let syntax = match spec.option(SYNTAX.name).first() {
            Some(word) => Syntax::parse(word)
                .map_err(|message| Fault::failed(Code::InvalidArgument, message))?,
            None => Syntax::Current,
        };
        let mut env = vec![
            ("PATH".to_owned(), path),
            ("TERM".to_owned(), "dumb".to_owned()),
        ];
        env.extend(variable("HOME").map(|home| ("HOME".to_owned(), home)));
        let url = spec.option(BASE_URL.name).first();
        env.extend(url.map(|url| ("SPRITES_API_URL".to_owned(), url.clone())));
        Ok(Arc::new(Self {
            program,
            syntax,
            env,
            token: spec.credential.clone(),
        }))
    }

    /// Checks that the program has the required flags.
    ///
    /// # Errors
    /// `cli-too-old`, and those of a call.
    pub fn check(&self, deadline: Instant) -> Result<(), Fault> {
        let output = self.output(&["exec", "--help"], deadline)?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let has_flag = |flag: &str| {
            text.split(|c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']' | '/' | '|'))
                .any(|word| word == flag)
        };
        let is_able = match self.syntax {
            Syntax::Current => has_flag("-s") && has_flag("--no-port-forward"),
            Syntax::Old => true,
        };
        if output.status.success() && is_able {
            return Ok(());
        }
        Err(Fault::refused(
            Code::CliTooOld,
            format!(
                "{} is too old: it cannot run a command in a Sprite that is named with `-s`",
                self.program.display()
            ),
        )
        .remedy("run `sprite upgrade`, or choose `sprites.cli_syntax = \"old\"` for a program of the older form"))
    }

    /// Creates a Sprite.
    ///
    /// # Errors
    /// `already-exists`, `not-authenticated`, `carrier-failed` with the program's message.
    pub fn create(&self, name: &str, deadline: Instant) -> Result<(), Fault> {
        match self.call(&self.syntax.create(name), deadline) {
            Ok(_) => Ok(()),
            Err(fault) if fault.code == Code::CarrierFailed && self.has(name, deadline)? => {
                Err(Fault::refused(
                    Code::AlreadyExists,
                    format!("there is a Sprite `{name}` already, and nothing shows that it was made from here"),
                )
                .remedy("take another name, or name the Sprite as one that exists"))
            }
            Err(fault) => Err(fault),
        }
    }

    /// Returns true if there is a Sprite with this name.
    ///
    /// # Errors
    /// Those of a call.
    pub fn has(&self, name: &str, deadline: Instant) -> Result<bool, Fault> {
        Ok(self.list(name, deadline)?.iter().any(|found| found == name))
    }

    /// Returns the names of all Sprites that begin with `prefix`.
    ///
    /// # Errors
    /// Those of a call.
    pub fn list(&self, prefix: &str, deadline: Instant) -> Result<Vec<String>, Fault> {
        let output = self.call(&self.syntax.list(prefix), deadline)?;
        Ok(listing::names(self.syntax, &output, prefix))
    }

    /// Destroys a Sprite. Succeeds if there is none.
    ///
    /// # Errors
    /// Those of a call.
    pub fn destroy(&self, name: &str, deadline: Instant) -> Result<(), Fault> {
        match self.call(&self.syntax.destroy(name), deadline) {
            Err(fault) if fault.code == Code::CarrierFailed && !self.has(name, deadline)? => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// Returns the command that runs a shell in a Sprite; its standard streams are the transport.
    pub(super) fn shell(&self, name: &str) -> Command {
        self.command(&self.syntax.shell(name))
    }

    /// Runs the program to its end and returns its output.
    fn call(&self, words: &[&str], deadline: Instant) -> Result<String, Fault> {
        let output = self.output(words, deadline)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let last_words = String::from_utf8_lossy(&output.stderr);
        Err(failure(words[0], output.status.code(), &last_words))
    }

    fn output(&self, words: &[&str], deadline: Instant) -> Result<Output, Fault> {
        let mut command = self.command(words);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.no_start(&error))?;
        let stdout = child.stdout.take().map(read_in_background);
        let stderr = child.stderr.take().map(read_in_background);
        let status = loop {
            let ended = child.try_wait().map_err(|error| self.no_start(&error))?;
            if let Some(status) = ended {
                break status;
            }
            if Instant::now() >= deadline {
                // Fails only if the program has ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
                return Err(Fault::failed(
                    Code::CarrierFailed,
                    format!("`{NAME} {}` did not end in time", words[0]),
                )
                .remedy([
                    "give it more time with ".into(),
                    Setting::StartTimeout.of("5m"),
                ]));
            }
            thread::sleep(END_PAUSE);
        };
        Ok(Output {
            status,
            stdout: join(stdout),
            stderr: join(stderr),
        })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(words)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            // A process group of its own: Ctrl-C at the user's terminal is for the command, not for
            // this program.
            .process_group(0);
        if let Some(token) = &self.token {
            // The program reads this variable; other users could read a command line.
            command.env("SPRITE_TOKEN", token.expose());
        }
        command
    }

    /// Creates the fault for a program that cannot be started.
    pub(super) fn no_start(&self, error: &io::Error) -> Fault {
        not_found(format!(
            "{} cannot be started: {error}",
            self.program.display()
        ))
    }
}

impl fmt::Debug for Cli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cli")
            .field("program", &self.program)
            .field("syntax", &self.syntax)
            .finish_non_exhaustive()
    }
}

fn not_found(message: String) -> Fault {
    Fault::refused(Code::CliNotFound, message).remedy([
        "install the program of Sprites, or use the service without it: ".into(),
        Setting::Carrier.of("websocket"),
    ])
}

fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

/// Reads a bounded part of the program's output and discards the rest, so that the program never
/// blocks.
fn read_in_background(mut source: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A read error costs a part of a message at most.
        let _ = source
            .by_ref()
            .take(MAX_OUTPUT_BYTES)
            .read_to_end(&mut bytes);
        let _ = io::copy(&mut source, &mut io::sink());
        bytes
    })
}

fn join(reader: Option<JoinHandle<Vec<u8>>>) -> Vec<u8> {
    reader
        .and_then(|reader| reader.join().ok())
        .unwrap_or_default()
}

/// Returns the fault that the program's last output stands for. `code` is the exit code if the
/// program ended by itself.
pub(super) fn failure(what: &str, code: Option<i32>, words: &str) -> Fault {
    let shown = show_message(words.as_bytes());
    let lower = words.to_ascii_lowercase();
    if code == Some(1) && AUTHENTICATION.iter().any(|word| lower.contains(word)) {
        return Fault::refused(
            Code::NotAuthenticated,
            format!("`{NAME}` is not logged in: {shown}"),
        )
        .remedy("run `sprite login`, or set SPRITES_TOKEN");
    }
    let code = code.map_or_else(String::new, |code| format!(" with exit code {code}"));
    Fault::failed(
        Code::CarrierFailed,
        format!("`{NAME} {what}` ended{code}: {shown}"),
    )
}
