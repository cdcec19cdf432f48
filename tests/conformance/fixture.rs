//! One sandbox of one backend, in a state directory of its own.

use crate::sshd::Sshd;
use glovebox_sandbox::{
    Backend, Credential, Name, Registry, RegistryConfig, Sandbox, SandboxSpec, Supervisor, backend,
};
use glovebox_spec::Net;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use testkit::ContractServer;

/// What a check works with. Paths inside are relative: every backend starts in the project.
#[derive(Debug)]
pub(crate) struct Fixture {
    temp: tempfile::TempDir,
    pub(crate) registry: Registry,
    pub(crate) spec: SandboxSpec,
    is_supervised: bool,
    /// Dropped after all sandboxes.
    service: Option<ContractServer>,
    _server: Option<Sshd>,
}

impl Fixture {
    fn with(backend: Backend, server: Option<Sshd>) -> Result<Self, String> {
        let temp = tempfile::Builder::new()
            .prefix("glovebox-conformance-")
            .tempdir()
            .map_err(|error| error.to_string())?;
        for dir in ["project", "home", "cache"] {
            fs::create_dir(temp.path().join(dir)).map_err(|error| error.to_string())?;
        }
        let config = RegistryConfig {
            state_dir: temp.path().join("state"),
            max_sandboxes: 8,
            seed_maker: None,
        };
        let registry = Registry::open(config).map_err(|fault| fault.to_string())?;
        testkit::bases::lend(&temp.path().join("state"));
        let mut spec = SandboxSpec::new(backend);
        spec.jail.env = environment(temp.path());
        let project = temp.path().join("project");
        if spec.backend == Backend::NATIVE {
            spec.jail.workspace = Some(project);
        } else {
            spec.cwd = Some(project);
        }
        Ok(Self {
            temp,
            registry,
            spec,
            is_supervised: false,
            service: None,
            _server: server,
        })
    }

    /// The `host` backend in a process of its own, this one being a client.
    pub(crate) fn supervised() -> Result<Self, String> {
        let mut fixture = Self::with(Backend::HOST, None)?;
        fixture.is_supervised = true;
        Ok(fixture)
    }

    pub(crate) fn host() -> Result<Self, String> {
        Self::with(Backend::HOST, None)
    }

    pub(crate) fn command(carrier: &[&str]) -> Result<Self, String> {
        let mut fixture = Self::with(Backend::COMMAND, None)?;
        fixture.lead_by(carrier.iter().copied());
        Ok(fixture)
    }

    pub(crate) fn command_sh() -> Result<Self, String> {
        Self::command(&["sh"])
    }

    pub(crate) fn command_ssh() -> Result<Self, String> {
        let server = Sshd::start()?;
        let carrier = server.carrier();
        let mut fixture = Self::with(Backend::COMMAND, Some(server))?;
        fixture.lead_by(carrier);
        Ok(fixture)
    }

    /// Takes another carrier.
    pub(crate) fn lead_by(&mut self, carrier: impl IntoIterator<Item = impl Into<String>>) {
        self.spec.backend = Backend::COMMAND;
        self.spec.set_option("carrier", carrier);
    }

    /// A Sprite of a server with that contract, by WebSocket.
    pub(crate) fn sprites_ws() -> Result<Self, String> {
        Self::elsewhere("sprites", &["--token", "conformance"])
    }

    /// A directory in a server with the contract of an AIO Sandbox.
    pub(crate) fn aio_exec() -> Result<Self, String> {
        Self::elsewhere("aio", &["--key", "conformance"])
    }

    /// The same, by a stand-in for the service's own program.
    pub(crate) fn sprites_cli() -> Result<Self, String> {
        let mut fixture = Self::sprites_ws()?;
        let program = testkit::install_sprite_cli(fixture.temp.path(), false);
        let program = program.to_str().ok_or("no UTF-8")?.to_owned();
        fixture.spec.set_option("carrier", ["cli"]);
        fixture.spec.set_option("sprites.cli", [program]);
        // The program sets no policy.
        fixture.spec.jail.net = Net::Host;
        Ok(fixture)
    }

    /// The backend that only tests have.
    pub(crate) fn made_up() -> Result<Self, String> {
        register_backends();
        let backend = Backend::named("made-up").ok_or("it is not registered")?;
        Self::with(backend, None)
    }

    fn elsewhere(name: &'static str, key: &[&str]) -> Result<Self, String> {
        register_backends();
        let backend = Backend::named(name).ok_or("it is not registered")?;
        let mut fixture = Self::with(backend, None)?;
        let machines = fixture.path("machines");
        let mut arguments = vec!["--dir", machines.to_str().ok_or("no UTF-8")?];
        arguments.extend(key);
        let service = ContractServer::start(name, &arguments);
        fixture.spec.set_option("base_url", [service.url()]);
        fixture.spec.credential = Credential::new("conformance").ok();
        fixture.service = Some(service);
        Ok(fixture)
    }

    pub(crate) fn native() -> Result<Self, String> {
        let mut fixture = Self::with(Backend::NATIVE, None)?;
        // The home of the machine is not there inside.
        let home = ("HOME".to_owned(), "/tmp/home".to_owned());
        fixture.spec.jail.env.push(home);
        match fixture.registry.create(&fixture.spec, None) {
            Ok(probe) => probe.destroy().map_err(|fault| fault.to_string())?,
            Err(fault) => return Err(format!("no native sandboxes here: {fault}")),
        }
        Ok(fixture)
    }

    pub(crate) fn sandbox(&self) -> Sandbox {
        if self.is_supervised {
            let name = Name::random("client");
            let supervisor = Supervisor {
                exe: env!("CARGO_BIN_EXE_actor").into(),
            };
            self.registry.start(&self.spec, &name, &supervisor).unwrap();
            return self.registry.connect(&name).unwrap();
        }
        self.registry.create(&self.spec, None).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// Directories of sandboxes that exist.
    pub(crate) fn rooms(&self) -> Vec<PathBuf> {
        let rooms = fs::read_dir(self.path("state/sandboxes")).unwrap();
        rooms.flatten().map(|entry| entry.path()).collect()
    }
}

fn register_backends() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        backend::register(vec![
            Box::new(glovebox_sprites::Sprites),
            Box::new(glovebox_aio::Aio),
            Box::new(glovebox_made_up::MadeUp),
        ]);
    });
}

fn environment(temp: &Path) -> Vec<(String, String)> {
    let dir = |name: &str| temp.join(name).display().to_string();
    vec![
        (
            "PATH".to_owned(),
            "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".to_owned(),
        ),
        ("HOME".to_owned(), dir("home")),
        ("XDG_CACHE_HOME".to_owned(), dir("cache")),
    ]
}

impl Drop for Fixture {
    fn drop(&mut self) {
        for entry in self.registry.list().unwrap_or_default() {
            let _ = self.registry.kill(&entry.name);
        }
        if !std::thread::panicking() {
            testkit::bases::hand_on(&self.path("state"));
        }
        // What the registry still removes on a thread of its own gets in the way of removing all.
        let _ = testkit::wait_until(Duration::from_secs(5), || {
            fs::remove_dir_all(self.temp.path()).is_ok()
        });
    }
}

/// An argument for `sleep` that no other test uses, to find its processes by.
pub(crate) fn marker() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}.{}{next:05}", 4000 + next, std::process::id())
}

/// Processes of this machine with this word in their arguments.
pub(crate) fn processes(word: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let Ok(words) = fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        if words
            .split(|byte| *byte == 0)
            .any(|one| one == word.as_bytes())
        {
            found.push(pid);
        }
    }
    found
}

/// Waits until something holds; false after ten seconds.
pub(crate) fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}
