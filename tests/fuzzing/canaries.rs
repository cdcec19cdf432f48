//! What is outside a sandbox and must stay as it is: files, a process, sockets, shared memory, settings.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use testkit::{Canary, Person, Process, marker};

const CONTENT: &str = "canary";
/// Settings of the whole machine that a sandbox must not change.
const SETTINGS: [&str; 3] = [
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/domainname",
];

/// Everything that is watched.
pub(crate) struct Canaries {
    files: Canary,
    project: Canary,
    outside: PathBuf,
    process: Child,
    found: Process,
    tcp: TcpListener,
    udp: UdpSocket,
    abstract_name: String,
    abstract_socket: UnixListener,
    path_socket: UnixListener,
    shared_memory: PathBuf,
    segment: Segment,
    settings: Vec<String>,
}

impl Canaries {
    /// Plants them around a person's project. What is theirs belongs to them.
    pub(crate) fn plant(person: &Person) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "glovebox-fuzzing-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let root = person.place().root();
        let (outside, inside) = (root.join(format!("outside-{name}")), person.project());
        Canary::plant(&outside);
        if !inside.join("canary").exists() {
            Canary::plant(inside.join("canary"));
        }
        person.own(&outside);
        person.own(&inside);
        let process = Command::new("sleep").arg(marker()).spawn().unwrap();
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let shared_memory = PathBuf::from(format!("/dev/shm/{name}"));
        fs::write(&shared_memory, CONTENT).unwrap();
        let canaries = Self {
            found: state_of(process.id()),
            process,
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            abstract_socket: UnixListener::bind_addr(&address).unwrap(),
            abstract_name: name,
            path_socket: UnixListener::bind(outside.join("socket")).unwrap(),
            shared_memory,
            segment: Segment::new(),
            settings: settings(),
            files: Canary::watch(outside.join("deep")),
            // The fuzzer and its table as well.
            project: Canary::watch(inside),
            outside,
        };
        canaries.tcp.set_nonblocking(true).unwrap();
        canaries.udp.set_nonblocking(true).unwrap();
        canaries.abstract_socket.set_nonblocking(true).unwrap();
        canaries.path_socket.set_nonblocking(true).unwrap();
        canaries
    }

    /// Where they are, in the words of the fuzzer's command line.
    pub(crate) fn words(&self) -> [String; 3] {
        let port = self.tcp.local_addr().unwrap().port();
        [
            self.outside.join("deep/er").display().to_string(),
            port.to_string(),
            self.abstract_name.clone(),
        ]
    }

    pub(crate) fn assert_untouched(&self) {
        self.files.assert_untouched();
        self.project.assert_untouched();
        assert_eq!(state_of(self.process.id()), self.found, "a process outside");
        assert!(self.tcp.accept().is_err(), "somebody connected over TCP");
        assert!(self.udp.recv(&mut [0]).is_err(), "somebody sent a datagram");
        assert!(self.abstract_socket.accept().is_err(), "an abstract socket");
        assert!(self.path_socket.accept().is_err(), "a socket with a path");
        let shared = fs::read_to_string(&self.shared_memory).unwrap();
        assert_eq!(shared, CONTENT, "POSIX shared memory");
        assert_eq!(self.segment.content(), CONTENT, "System V shared memory");
        assert_eq!(settings(), self.settings, "settings of the machine");
    }
}

impl Drop for Canaries {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.shared_memory);
    }
}

fn settings() -> Vec<String> {
    SETTINGS
        .iter()
        .map(|path| fs::read_to_string(path).unwrap_or_default())
        .collect()
}

/// A process once it sleeps, and is not stopped.
fn state_of(id: u32) -> Process {
    let found = testkit::wait_until(std::time::Duration::from_secs(20), || {
        Process::find(id)
            .is_some_and(|process| process.state == 'S' && process.line.contains("sleep"))
    });
    assert!(
        found,
        "the process outside does not sleep: {:?}",
        Process::find(id)
    );
    Process::find(id).unwrap()
}

/// A segment of System V shared memory that everybody may write to, were it not in another namespace.
struct Segment {
    id: String,
}

impl Segment {
    fn new() -> Self {
        let id = perl(&format!(
            "my $id = shmget(0, 4096, 01000 | 0666); shmwrite($id, '{CONTENT}', 0, 6) or die $!; print $id;"
        ));
        Self { id }
    }

    fn content(&self) -> String {
        perl(&format!(
            "my $text; shmread({}, $text, 0, 6) or die $!; print $text;",
            self.id
        ))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // IPC_RMID
        perl(&format!("shmctl({}, 0, 0);", self.id));
    }
}

fn perl(script: &str) -> String {
    let output = Command::new("perl").args(["-e", script]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}
