//! AIO Sandbox as a backend of Glovebox: a guest in a container of the user's, behind the traits of
//! a sandbox.

use crate::held::sandbox_of_dir;
use crate::{ApiKey, BaseUrl, Client, Connector, GuestProgram, PipeSizes, Placement, Tenant};
use glovebox_carrier::options::{self, BASE_URL, RECONNECT};
use glovebox_carrier::{GuestEnd, Sizes, carry, new_run_dir, owner_id, start_dir};
use glovebox_proto::{Code, Fault, Setting};
use glovebox_sandbox::backend::{
    Begun, CreateCx, Driver, GuestStream, HeldMachine, ServiceCx, ServiceFacts, still_needed,
    unheld_limits,
};
use glovebox_sandbox::{
    Backend, BackendOption, Capabilities, CheckpointStore, CredentialSource, Declaration, Files,
    GUEST, GUEST_SHA256, NAME_IN_URL, Name, Place, ProjectChoice, Report, SandboxSpec, StartCost,
    SubSandboxes, Walls, WorkspaceMode,
};
use glovebox_spec::{LimitState, Net};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

const KEY_FILE: BackendOption = BackendOption {
    name: "aio.key_file",
    flag: "aio-key-file",
    variable: "GLOVEBOX_AIO_KEY_FILE",
    value: "FILE",
    help: "With `--backend aio`: the file that holds the API key, where AIO_API_KEY is not set",
    meaning: "with `backend = \"aio\"`: the file that holds the API key or JWT, where `AIO_API_KEY` is not set",
    is_path: true,
    check: |_| Ok(()),
};

/// Option with the time after which an unused sandbox is stopped.
const IDLE: BackendOption = BackendOption {
    name: "aio.idle",
    flag: "aio-idle",
    variable: "GLOVEBOX_AIO_IDLE",
    value: "TIME",
    help: "With `--backend aio`: stop a sandbox that no client and no command has used for this long, or `never` [default: never]",
    meaning: "with `backend = \"aio\"`: a sandbox that no client and no command has used for this long is stopped, and its files \
              stay; `never` keeps it running",
    is_path: false,
    check: options::check_idle,
};

/// Sandbox name for an address that is only checked.
const ANY_NAME: &str = "name";
/// Maximum time to remove a sandbox's directory.
const REMOVAL_WAIT: Duration = Duration::from_secs(30);

static DECLARATION: Declaration = Declaration {
    name: "aio",
    about: "a directory in a container with AIO Sandbox",
    settings: &[],
    required: &[],
    options: &[BASE_URL, KEY_FILE, RECONNECT, IDLE],
    credential: Some(CredentialSource {
        variables: &["AIO_API_KEY"],
        file_option: KEY_FILE.name,
    }),
    project_choice: ProjectChoice::Never,
    capabilities: Capabilities {
        place: Place::Elsewhere,
        walls: Walls::Theirs,
        files: Files::Copied,
        has_own_dir: true,
        workspace_modes: &[WorkspaceMode::Copy, WorkspaceMode::None],
        keeps_files: true,
        checkpoints: CheckpointStore::None,
        shares_machine: true,
        can_freeze: false,
        networks: &[],
        can_nest: false,
        can_resume: true,
        sub_sandboxes: SubSandboxes::SameAsSession,
        can_serve: true,
        start: StartCost::Waiting,
        start_ms: 60_000,
    },
};

/// Driver of the backend `aio`.
#[derive(Debug)]
pub struct Aio;

impl Driver for Aio {
    fn backend(&self) -> Backend {
        Backend::declared(&DECLARATION)
    }

    fn check(&self, spec: &SandboxSpec) -> Result<(), Fault> {
        base_url(spec, ANY_NAME)?;
        if !spec.secrets.is_empty() || spec.jail.net == Net::Egress {
            return Err(Fault::refused(
                Code::Unsupported,
                "the network of a container with AIO Sandbox is as it is there",
            )
            .remedy([
                "leave ".into(),
                Setting::Net.into(),
                " and secrets out".into(),
            ]));
        }
        Ok(())
    }

    fn explain(&self, spec: &SandboxSpec) -> Result<String, Fault> {
        let base = base_url(spec, "NAME")?;
        Ok(format!(
            "the guest in the container at {base}, in a directory of its own; whoever runs that container decides what \
             isolates it\n"
        ))
    }

    fn summary(&self, spec: &SandboxSpec) -> Vec<String> {
        let place = spec.option(BASE_URL.name).first();
        place
            .map(|place| format!("at {place}"))
            .into_iter()
            .collect()
    }

    fn idle_time(&self, spec: &SandboxSpec) -> Option<Duration> {
        // The container runs anyway, so a guest that waits in it costs nothing.
        options::idle_time(spec, &IDLE, None)
    }

    fn destroy(&self, cx: &ServiceCx<'_>, name: &Name) -> Result<(), Fault> {
        let client = Client::new(base_url(cx.spec, name.as_str())?, key(cx.spec))?;
        let owner = owner_id(cx.state_dir)?;
        let dir = own_dir(cx.spec, name);
        dir.map_or(Ok(()), |dir| client.remove_dir(&owner, &dir, cx.deadline))
    }

    fn probe(&self, cx: &ServiceCx<'_>) -> Result<ServiceFacts, Fault> {
        let client = Client::new(container_url(cx.spec)?, key(cx.spec))?;
        let guest = GuestProgram::new(GUEST_SHA256, || GUEST.unpack());
        let facts = client
            .probe(&guest, &Placement::default(), cx.deadline)?
            .facts;
        Ok(ServiceFacts {
            os: format!("{} {}", facts.os, facts.os_version)
                .trim()
                .to_owned(),
            arch: facts.arch,
            home: facts.home_dir,
            version: Some(facts.version).filter(|version| !version.is_empty()),
        })
    }

    fn list_held(&self, cx: &ServiceCx<'_>) -> Result<Vec<HeldMachine>, Fault> {
        let client = Client::new(container_url(cx.spec)?, key(cx.spec))?;
        client.list_held(&owner_id(cx.state_dir)?, cx.known, cx.deadline)
    }

    fn remove_held(&self, cx: &ServiceCx<'_>, machine: &HeldMachine) -> Result<(), Fault> {
        let Some(name) = sandbox_of_dir(&machine.name) else {
            return Ok(());
        };
        if cx.known.contains(&name) {
            return Err(still_needed(&machine.name));
        }
        let client = Client::new(container_url(cx.spec)?, key(cx.spec))?;
        client.remove_held(&owner_id(cx.state_dir)?, &name, cx.deadline)
    }

    fn create(&self, cx: &CreateCx<'_>, _: Begun) -> Result<GuestStream, Fault> {
        let client = Client::new(base_url(cx.spec, cx.name.as_str())?, key(cx.spec))?;
        let removing = client.clone();
        let sizes = Sizes::default();
        let pipe_sizes = PipeSizes {
            batch: sizes.batch,
            ..PipeSizes::default()
        };
        let (owner, run_dir) = (owner_id(cx.state_dir)?, new_run_dir());
        let connector = Connector::new(
            client,
            GuestProgram::new(GUEST_SHA256, || GUEST.unpack()),
            placement(cx, &owner, &run_dir),
            run_dir,
            pipe_sizes,
        );
        let guest = carry(
            Box::new(connector),
            options::times(cx.spec),
            sizes,
            cx.deadline,
        )?;
        // The guest's session is closed with the connector, when the link is closed.
        let (client, dir) = (removing, own_dir(cx.spec, cx.name));
        let release = move |end| match (end, &dir) {
            (GuestEnd::Closed, Some(dir)) => {
                client.remove_dir(&owner, dir, Instant::now() + REMOVAL_WAIT)
            }
            (GuestEnd::Halted | GuestEnd::Lost, _) | (_, None) => Ok(()),
        };
        guest.into_stream(report(cx), Box::new(release))
    }
}

fn placement(cx: &CreateCx<'_>, owner: &str, run_dir: &str) -> Placement {
    Placement {
        guest_dir: None,
        cwd: Some(start_dir(cx.spec, cx.name).display().to_string()),
        // If the files of an earlier life are missing, a new empty directory would look as if all
        // had been deleted.
        needs_cwd: cx.is_resumed,
        tenant: Some(Tenant {
            owner: owner.to_owned(),
            name: cx.name.to_string(),
            // The run directory ends with random digits, which are unique to this life.
            life: run_dir.rsplit('-').next().unwrap_or_default().to_owned(),
            has_own_dir: cx.spec.cwd.is_none(),
        }),
    }
}

/// Returns the directory that was created for a sandbox. None if the user named one.
fn own_dir(spec: &SandboxSpec, name: &Name) -> Option<String> {
    let is_own = spec.cwd.is_none();
    is_own.then(|| name.directory_elsewhere())
}

/// Returns the address for a sandbox with this name.
fn base_url(spec: &SandboxSpec, name: &str) -> Result<BaseUrl, Fault> {
    let invalid = |message: &str| Fault::failed(Code::InvalidArgument, message);
    let Some(given) = spec.option(BASE_URL.name).first() else {
        return Err(
            invalid("the backend `aio` needs the address of an AIO Sandbox")
                .remedy("give it with --base-url, or as `base_url` in your own configuration"),
        );
    };
    if given.contains(' ') {
        return Err(invalid("a sandbox has one address, and several were given")
            .remedy("name one; several are for a server"));
    }
    BaseUrl::parse(&given.replace(NAME_IN_URL, name))
}

/// Returns the address of one container.
///
/// # Errors
/// `invalid-argument` if the address depends on the sandbox.
fn container_url(spec: &SandboxSpec) -> Result<BaseUrl, Fault> {
    let given = spec.option(BASE_URL.name).first();
    if given.is_some_and(|given| given.contains(NAME_IN_URL)) {
        return Err(Fault::failed(
            Code::InvalidArgument,
            format!("with {NAME_IN_URL} in it the address is another one for each sandbox"),
        )
        .remedy("name the address of one container"));
    }
    base_url(spec, "")
}

fn key(spec: &SandboxSpec) -> Option<ApiKey> {
    let credential = spec.credential.as_ref()?;
    let file = spec.option(KEY_FILE.name).first().map(PathBuf::from);
    let value = Zeroizing::new(credential.expose().to_owned());
    Some(ApiKey::new(value, file))
}

fn report(cx: &CreateCx<'_>) -> Report {
    let mut report = Report::new(DECLARATION.name, cx.name.as_str());
    report.limits = unheld_limits(cx.spec, "whoever runs the container decides");
    report.wall(
        "machine",
        LimitState::Approximate,
        "the service's word: a container",
    );
    report.wall(
        "neighbours",
        LimitState::Absent,
        "whoever else uses this address works in the same container",
    );
    report.wall("network", LimitState::Absent, "as it was found");
    report
}
