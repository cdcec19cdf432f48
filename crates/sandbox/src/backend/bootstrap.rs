//! Dialogue with a POSIX shell that starts a guest in its place.
//!
//! The script `bootstrap.sh` is sent as one command over the shell's standard input, with values
//! before it in single quotes. Nothing is passed as an argument of the carrier, so the only quoting
//! rule is the shell's simplest one. Noise before the answers (banners, rc files) is skipped up to
//! a bound; a nonce distinguishes answers from noise.

use crate::image::GUEST;
use crate::link::{set_nonblocking, until};
use crate::spec::name::random_hex;
use crate::{GUEST_SHA256, fault};
use glovebox_proto::{Code, Fault, Setting};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Instant;

const SCRIPT: &str = include_str!("bootstrap.sh");
const FUNCTIONS: &str = include_str!("shell.sh");
/// Maximum number of bytes of noise before an answer.
const MAX_NOISE_BYTES: usize = 64 << 10;

/// Settings of a guest on the other machine.
#[derive(Debug, Clone, Copy)]
pub struct GuestPlace<'a> {
    /// Working directory. `None` for that of the login.
    pub cwd: Option<&'a Path>,
    /// True to create the working directory if it is missing.
    pub makes_cwd: bool,
    /// Directory in which the program is kept. `None` for one that is found there.
    pub guest_dir: Option<&'a Path>,
    /// Words of its command line: letters, digits, `-`, `/` and spaces.
    pub command: &'a str,
}

/// Starts the guest through the shell that reads from `writer` and writes to `reader`. Returns the
/// guest's first bytes.
///
/// # Errors
/// `carrier-failed` with the reason, or `cwd-not-found`.
pub fn bring_guest(
    reader: &OwnedFd,
    writer: &OwnedFd,
    place: GuestPlace<'_>,
    deadline: Instant,
) -> Result<Vec<u8>, Fault> {
    Bootstrap::new(reader, writer, deadline).run(place)
}

/// Dialogue with one shell.
#[derive(Debug)]
struct Bootstrap<'a> {
    socket: (&'a OwnedFd, &'a OwnedFd),
    deadline: Instant,
    /// Bytes that were read and not parsed yet.
    unread: Vec<u8>,
}

impl<'a> Bootstrap<'a> {
    fn new(reader: &'a OwnedFd, writer: &'a OwnedFd, deadline: Instant) -> Self {
        Self {
            socket: (reader, writer),
            deadline,
            unread: Vec::new(),
        }
    }

    fn run(mut self, place: GuestPlace<'_>) -> Result<Vec<u8>, Fault> {
        set_nonblocking(self.socket.0)?;
        set_nonblocking(self.socket.1)?;
        let nonce = random_hex();
        let marker = format!("\nGLOVEBOX-{nonce} ");
        self.write(&script(&nonce, place))?;
        let mut was_sent = false;
        loop {
            let answer = self.answer(marker.as_bytes())?;
            match answer.split_once(' ').unwrap_or((answer.as_str(), "")) {
                ("need", _) if !was_sent => {
                    was_sent = true;
                    self.write(&GUEST.unpack()?)?;
                }
                ("start", _) => return Ok(self.unread),
                ("fail", why) => return Err(explain(why, place.cwd, place.guest_dir)),
                _ => return Err(failed(format!("the shell answered `{answer}` out of turn"))),
            }
        }
    }

    /// Returns the words after the next marker, up to the end of the line.
    fn answer(&mut self, marker: &[u8]) -> Result<String, Fault> {
        loop {
            let found = find(&self.unread, marker);
            let line = found.map(|at| at + marker.len());
            if let Some(from) = line
                && let Some(len) = self.unread[from..].iter().position(|byte| *byte == b'\n')
            {
                // TRUST: the words come from the other machine and may end up in a message, so they
                // are shortened and control characters are removed.
                let words = String::from_utf8_lossy(&self.unread[from..from + len]);
                let words = words
                    .chars()
                    .filter(|c| !c.is_control())
                    .take(200)
                    .collect();
                self.unread.drain(..=from + len);
                return Ok(words);
            }
            if self.unread.len() > MAX_NOISE_BYTES {
                return Err(failed(format!(
                    "more than {MAX_NOISE_BYTES} bytes came before the shell's answer"
                ))
                .remedy("make the login on the other side quiet"));
            }
            self.read()?;
        }
    }

    fn read(&mut self) -> Result<(), Fault> {
        let mut piece = [0_u8; 4096];
        loop {
            self.wait(PollFlags::IN)?;
            match rustix::io::read(self.socket.0, &mut piece) {
                Ok(0) => return Err(failed("it ended before the guest was up".to_owned())),
                Ok(count) => {
                    self.unread.extend_from_slice(&piece[..count]);
                    return Ok(());
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(failed(format!("reading from it failed: {errno}"))),
            }
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            match rustix::io::write(self.socket.1, bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::AGAIN | Errno::INTR) => self.wait(PollFlags::OUT)?,
                Err(_) => {
                    // The shell may have printed a reason.
                    while self.unread.len() <= MAX_NOISE_BYTES && self.read().is_ok() {}
                    return Err(failed(
                        "it took no more input before the guest was up".to_owned(),
                    ));
                }
            }
        }
        Ok(())
    }

    fn wait(&self, flags: PollFlags) -> Result<(), Fault> {
        let fd = if flags == PollFlags::IN {
            self.socket.0
        } else {
            self.socket.1
        };
        let Ok(left) = until(Some(self.deadline)) else {
            return Err(
                failed("the guest was not up in time".to_owned()).remedy([
                    "see whether the carrier connects by itself, without a question, or give it more time with "
                        .into(),
                    Setting::StartTimeout.of("2m"),
                ]),
            );
        };
        match poll(&mut [PollFd::new(fd, flags)], left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(fault::plain_io("cannot wait for the carrier", errno)),
        }
    }
}

fn failed(what: String) -> Fault {
    Fault::failed(Code::CarrierFailed, what)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// Returns the whole text for the shell: one compound command that ends the shell. Comments are
/// left out.
fn script(nonce: &str, place: GuestPlace<'_>) -> Vec<u8> {
    let size = GUEST.len().to_string();
    let bytes_of = |path: Option<&Path>| {
        path.map_or_else(Vec::new, |path| path.as_os_str().as_bytes().to_vec())
    };
    let (cwd, guest_dir) = (bytes_of(place.cwd), bytes_of(place.guest_dir));
    let values: [(&str, &[u8]); 8] = [
        ("n", nonce.as_bytes()),
        ("h", GUEST_SHA256.as_bytes()),
        ("z", size.as_bytes()),
        ("a", std::env::consts::ARCH.as_bytes()),
        ("d", &cwd),
        ("m", if place.makes_cwd { b"1" } else { b"" }),
        ("k", &guest_dir),
        ("s", place.command.as_bytes()),
    ];
    let mut text = b"{ ".to_vec();
    text.extend(shell_script(&values, SCRIPT));
    text.extend_from_slice(b"exit 1; }\n");
    text
}

/// Builds a script for a POSIX shell on another machine: values by name, then the functions of
/// `shell.sh` (`say`, `fail`, `sum`, `find_tool`, `usable`, `check_machine`), then `body`. Comments
/// are left out.
pub fn shell_script(values: &[(&str, &[u8])], body: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(FUNCTIONS.len() + body.len() + 512);
    for (name, value) in values {
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        text.extend_from_slice(&quote(value));
        text.push(b'\n');
    }
    let is_code = |line: &&str| !line.trim_start().starts_with('#') && !line.is_empty();
    for line in FUNCTIONS.lines().chain(body.lines()).filter(is_code) {
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    text
}

/// Quotes a word for a POSIX shell. Between single quotes every byte but the quote stands for
/// itself.
pub fn quote(word: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for byte in word {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

fn explain(why: &str, cwd: Option<&Path>, guest_dir: Option<&Path>) -> Fault {
    let ours = std::env::consts::ARCH;
    let (word, detail) = why.split_once(' ').unwrap_or((why, ""));
    match word {
        "tty" => failed("the carrier gives the shell a terminal, which changes bytes".to_owned())
            .remedy("leave out options such as `-t`"),
        "system" => failed(format!(
            "the other side runs `{detail}`; the guest needs Linux"
        )),
        "arch" => failed(format!(
            "the other side is `{detail}`; this glovebox carries a guest for {ours} only"
        )),
        "hash" => failed("the other side has no program to check a SHA-256 sum".to_owned())
            .remedy("install coreutils, busybox or openssl there"),
        "head" => failed("the other side has no `head`".to_owned())
            .remedy("install coreutils or busybox there"),
        "dir" => {
            failed("the other side has no directory of ours that lets programs run".to_owned())
                .remedy([
                    "name one that is writable and not mounted noexec with ".into(),
                    Setting::GuestDir.of("DIR"),
                ])
        }
        "guestdir" => failed(format!(
            "the guest cannot be kept in {} on the other side: that is not a directory of ours in which programs may be \
             written and run",
            guest_dir.unwrap_or(Path::new("")).display()
        ))
        .remedy([
            "name another one with ".into(),
            Setting::GuestDir.of("DIR"),
            ", or none".into(),
        ]),
        "write" => failed("the guest could not be stored on the other side".to_owned())
            .remedy("see whether its disk is full"),
        "mismatch" => failed("the guest arrived changed; its SHA-256 sum is wrong".to_owned())
            .remedy("the carrier must pass bytes through unchanged"),
        "cwd" => Fault::failed(
            Code::CwdNotFound,
            format!(
                "cannot work in {} on the other side",
                cwd.unwrap_or(Path::new("")).display()
            ),
        ),
        _ => failed(format!("the other side failed: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The shell prints a quoted word unchanged.
        #[test]
        fn quoting_is_exact(word in proptest::collection::vec(1_u8..=255, 0..40)) {
            use std::os::unix::ffi::OsStringExt as _;
            let mut script = b"printf %s ".to_vec();
            script.extend(quote(&word));
            let script = std::ffi::OsString::from_vec(script);
            let output = Command::new("sh").env("LC_ALL", "C").arg("-c").arg(script).output().unwrap();
            prop_assert_eq!(output.stdout, word);
        }
    }

    #[test]
    fn the_script_has_no_comment_and_parses() {
        let text = script(
            "0",
            GuestPlace {
                cwd: None,
                makes_cwd: false,
                guest_dir: None,
                command: "serve",
            },
        );
        let output = Command::new("sh")
            .arg("-n")
            .arg("-c")
            .arg(String::from_utf8(text).unwrap())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
