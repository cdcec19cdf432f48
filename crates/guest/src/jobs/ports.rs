//! Finds the job that holds a port, by the sockets among the descriptors of the job's processes.
//!
//! The event loop does this: a thread that is confined like the commands could not read the
//! descriptors of another process.

use super::Jobs;
use super::job::Job;
use crate::ports::{self, BoundSocket};
use glovebox_jail::process::Census;
use glovebox_proto::{
    Denial, Fault, JobId, ListeningPort, MAX_PORTS_LISTED, PortHolder, PortUse, Reply, visible,
};
use rustix::fs::CWD;
use serde_bytes::ByteBuf;
use std::collections::HashMap;
use std::fs;

/// Maximum number of descriptors read for one answer, which takes some tens of milliseconds.
const MAX_DESCRIPTORS: usize = 20_000;
/// Messages for EADDRINUSE (strerror(3)), in lower case.
const IN_USE: [&[u8]; 2] = [b"address already in use", b"eaddrinuse"];
/// Maximum number of ports reported for one command.
const MAX_NAMED: usize = 2;

impl Jobs {
    /// Lists the ports that servers of the sandbox listen on.
    ///
    /// # Errors
    /// The kernel's tables cannot be read.
    pub(crate) fn list_ports(&self) -> Result<Reply, Fault> {
        let mut found = ports::listening()?;
        let mut holders = self.find_holders(&found);
        self.drop_foreign(&mut found, &holders);
        found.truncate(MAX_PORTS_LISTED);
        let ports = found.into_iter().map(|socket| ListeningPort {
            port: socket.port,
            address: socket.address,
            holder: holders.remove(&socket.inode),
        });
        Ok(Reply::Ports(ports.collect()))
    }

    /// Returns the ports that a failed job could not bind because they are in use.
    pub(super) fn find_taken_ports(&self, job: &Job, output: &[u8]) -> Vec<Denial> {
        if !says_in_use(output) {
            return Vec::new();
        }
        let Ok(mut sockets) = ports::in_use() else {
            return Vec::new();
        };
        let complaints = complaints(output);
        // A program whose message names no port may have received it as an argument.
        let command = job.command_line();
        let mut named: Vec<u16> = [&complaints, &command]
            .map(|text| numbers(text))
            .into_iter()
            .map(|mut numbers| {
                numbers.retain(|port| sockets.iter().any(|socket| socket.port == *port));
                numbers
            })
            .find(|numbers| !numbers.is_empty())
            .unwrap_or_default();
        sockets.retain(|socket| named.contains(&socket.port));
        let holders = self.find_holders(&sockets);
        self.drop_foreign(&mut sockets, &holders);
        named.retain(|port| sockets.iter().any(|socket| socket.port == *port));
        let use_of = |port: u16| {
            let mut of_port = sockets.iter().filter(|socket| socket.port == port);
            let holder = of_port.find_map(|socket| holders.get(&socket.inode));
            let by = holder.map_or(PortUse::Unknown, |holder| PortUse::Job {
                job: holder.job,
                pid: holder.pid,
                command: visible::line(&holder.command),
            });
            Denial::PortTaken { port, by }.made_safe()
        };
        named.into_iter().take(MAX_NAMED).map(use_of).collect()
    }

    /// Drops sockets that are not the sandbox's, where the kernel's tables list those of the whole
    /// machine.
    fn drop_foreign(&self, sockets: &mut Vec<BoundSocket>, holders: &HashMap<u64, PortHolder>) {
        if self.defaults.monitor.is_some() {
            sockets.retain(|socket| holders.contains_key(&socket.inode));
        }
    }

    /// Finds the job processes that have these sockets open, by inode number.
    fn find_holders(&self, sockets: &[BoundSocket]) -> HashMap<u64, PortHolder> {
        let mut found = HashMap::new();
        if sockets.is_empty() {
            return found;
        }
        let Ok(census) = Census::take() else {
            return found;
        };
        let mut left = MAX_DESCRIPTORS;
        for (warden, id) in &self.by_warden {
            let command = self.table.get(id).map(Job::command_line);
            // Parents come before their children: the server is reported, not its forks.
            for member in census.descendants_of(*warden) {
                let pid = member.pid.as_raw_pid().unsigned_abs();
                for inode in open_sockets(pid, &mut left) {
                    if sockets.iter().any(|socket| socket.inode == inode) {
                        found.entry(inode).or_insert_with(|| PortHolder {
                            job: JobId(id.0),
                            pid,
                            command: ByteBuf::from(command.clone().unwrap_or_default()),
                        });
                    }
                }
            }
        }
        found
    }
}

/// Returns the inode numbers of the sockets that a process has open; none for a process that is not
/// dumpable. `left` bounds the descriptors read.
fn open_sockets(pid: u32, left: &mut usize) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Some(rest) = left.checked_sub(1) else {
            break;
        };
        *left = rest;
        let target = rustix::fs::readlinkat(CWD, entry.path(), Vec::new()).ok();
        let inode: Option<u64> = target.as_ref().and_then(|target| {
            let text = target.to_str().ok()?;
            let number = text.strip_prefix("socket:[")?.strip_suffix(']')?;
            number.parse().ok()
        });
        found.extend(inode);
    }
    found
}

fn says_in_use(text: &[u8]) -> bool {
    let small = text.to_ascii_lowercase();
    IN_USE
        .iter()
        .any(|words| memchr::memmem::find(&small, words).is_some())
}

/// Returns the lines that report a port in use.
fn complaints(output: &[u8]) -> Vec<u8> {
    let lines = output.split(|byte| *byte == b'\n');
    lines
        .filter(|line| says_in_use(line))
        .collect::<Vec<_>>()
        .join(&b'\n')
}

/// Returns the numbers in a text that can be ports, in order, each once.
fn numbers(text: &[u8]) -> Vec<u16> {
    let mut found = Vec::new();
    for digits in text.split(|byte| !byte.is_ascii_digit()) {
        let number = std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse().ok());
        found.extend(number.filter(|port| *port != 0 && !found.contains(port)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_ports_are_read_from_complaints() {
        let said = b"ready in 300 ms\nError: listen EADDRINUSE: address already in use :::8080\nat line 12\n";
        assert!(says_in_use(said));
        assert_eq!(numbers(&complaints(said)), [8080]);
        assert_eq!(numbers(b"python3 -m http.server 8080"), [3, 8080]);
        assert_eq!(numbers(b"0 70000 x"), [0; 0]);
        assert!(!says_in_use(b"in use"));
    }
}
