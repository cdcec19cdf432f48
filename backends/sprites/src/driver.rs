//! Sprites as a backend of Glovebox: a machine of the service behind the traits of a sandbox.

use crate::cli::{self, CliConnect};
use crate::names::{is_name, name_prefix};
use crate::service::{Service, TOKEN_FILE, base_url, place, takes_cli};
use crate::{
    BringUp, NewSprite, PolicyAction, PolicyRule, Renewal, RenewalTimes, SpriteConnect,
    await_goodbyes, labels, sprite_name,
};
use glovebox_carrier::options::{self, BASE_URL, RECONNECT};
use glovebox_carrier::{
    Connect, GuestEnd, LinkedGuest, Release, Sizes, carry, new_run_dir, owner_id, start_dir,
};
use glovebox_egress::Rule;
use glovebox_proto::{Code, Fault, Setting};
use glovebox_sandbox::backend::{
    Begun, Claim, CreateCx, Driver, GuestPlace, GuestStream, HeldMachine, ServiceCheckpoints,
    ServiceCx, ServiceFacts, bring_guest, still_needed, unheld_limits,
};
use glovebox_sandbox::{
    Backend, BackendOption, Capabilities, CheckpointStore, CredentialSource, Declaration, Files,
    Name, Place, ProjectChoice, Report, SandboxSpec, StartCost, SubSandboxes, Walls, WorkspaceMode,
};
use glovebox_spec::{LimitState, Net};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Option that names an existing Sprite, which is used unchanged.
const NAME: BackendOption = BackendOption {
    name: "sprites.name",
    flag: "sprite",
    variable: "GLOVEBOX_SPRITE",
    value: "NAME",
    help: "With `--backend sprites`: use this Sprite, which exists, and leave it as it is",
    meaning: "with `backend = \"sprites\"`: a Sprite that exists; it is used, and neither labelled nor destroyed",
    is_path: false,
    check: check_name,
};

/// Option with the time after which the machine of an unused sandbox may fall asleep.
const IDLE: BackendOption = BackendOption {
    name: "sprites.idle",
    flag: "sprites-idle",
    variable: "GLOVEBOX_SPRITES_IDLE",
    value: "TIME",
    help: "With `--backend sprites`: stop a sandbox that no client and no command has used for this long, or `never` [default: 10m]",
    meaning: "with `backend = \"sprites\"`: a sandbox that no client and no command has used for this long is stopped, and its \
              files stay; `never` keeps it running",
    is_path: false,
    check: options::check_idle,
};

/// Default of that time.
const USUAL_IDLE: Duration = Duration::from_mins(10);
/// Time for which a machine counts as needed after its label is written.
const KEPT_FOR: Duration = Duration::from_hours(24);
/// Maximum time to renew the label.
const RENEWAL_WAIT: Duration = Duration::from_secs(10);
/// Maximum time to destroy a machine.
const DESTROY_WAIT: Duration = Duration::from_secs(30);
/// Maximum time to send the last bytes to a guest.
const GOODBYE_WAIT: Duration = Duration::from_secs(3);
/// Ports of plain HTTP and of TLS: a policy of names opens both.
const WEB_PORTS: [u16; 2] = [80, 443];

static DECLARATION: Declaration = Declaration {
    name: "sprites",
    about: "a microVM of the service Sprites for each sandbox",
    settings: &["net", "allow", "deny", "carrier"],
    required: &[],
    options: &[
        BASE_URL,
        NAME,
        TOKEN_FILE,
        RECONNECT,
        IDLE,
        cli::PROGRAM,
        cli::SYNTAX,
    ],
    credential: Some(CredentialSource {
        variables: &["SPRITES_TOKEN", "SPRITE_TOKEN"],
        file_option: TOKEN_FILE.name,
    }),
    project_choice: ProjectChoice::Never,
    capabilities: Capabilities {
        place: Place::Elsewhere,
        walls: Walls::Theirs,
        files: Files::Copied,
        has_own_dir: true,
        workspace_modes: &[WorkspaceMode::Copy, WorkspaceMode::None],
        keeps_files: true,
        checkpoints: CheckpointStore::Service,
        shares_machine: false,
        can_freeze: false,
        networks: &[Net::None, Net::Egress, Net::Host],
        can_nest: false,
        can_resume: true,
        sub_sandboxes: SubSandboxes::SameAsSession,
        can_serve: true,
        start: StartCost::Waiting,
        start_ms: 120_000,
    },
};

/// Driver of the backend `sprites`.
#[derive(Debug)]
pub struct Sprites;

/// Machine of one sandbox.
#[derive(Debug, Clone)]
struct Machine {
    service: Service,
    name: String,
    /// True if Glovebox created it, and so may destroy it.
    is_ours: bool,
}

impl Driver for Sprites {
    fn backend(&self) -> Backend {
        Backend::declared(&DECLARATION)
    }

    fn check(&self, spec: &SandboxSpec) -> Result<(), Fault> {
        base_url(spec)?;
        takes_cli(spec)?;
        if !spec.secrets.is_empty() {
            return Err(Fault::refused(
                Code::Unsupported,
                "values of secrets cannot be filled in on the way out of a Sprite",
            )
            .remedy("leave the secrets out, or use the native backend"));
        }
        if given_name(spec).is_some() {
            return match spec.jail.net {
                Net::None => Ok(()),
                Net::Egress | Net::Host => Err(Fault::refused(
                    Code::Unsupported,
                    "the network of a Sprite that exists stays as it is",
                )
                .remedy(["leave ".into(), Setting::Net.into(), " out".into()])),
            };
        }
        if takes_cli(spec)? {
            return check_network_of_cli(spec);
        }
        policy(spec).map(drop)
    }

    fn explain(&self, spec: &SandboxSpec) -> Result<String, Fault> {
        base_url(spec)?;
        takes_cli(spec)?;
        let place = place(spec);
        Ok(match given_name(spec) {
            Some(name) => format!(
                "the guest in the Sprite `{name}` {place}, which is left as it is; that service decides what isolates it\n"
            ),
            None => format!(
                "the guest in a new Sprite {place}, which is destroyed at the end; that service decides what isolates it\n"
            ),
        })
    }

    fn summary(&self, spec: &SandboxSpec) -> Vec<String> {
        let mut words = vec![place(spec)];
        words.extend(given_name(spec).map(|name| format!("the Sprite {name}")));
        words
    }

    fn idle_time(&self, spec: &SandboxSpec) -> Option<Duration> {
        // An open link keeps the machine awake, which costs.
        options::idle_time(spec, &IDLE, Some(USUAL_IDLE))
    }

    fn checkpoints(&self) -> Option<&dyn ServiceCheckpoints> {
        Some(self)
    }

    fn probe(&self, cx: &ServiceCx<'_>) -> Result<ServiceFacts, Fault> {
        let prefix = name_prefix(&owner_id(cx.state_dir)?);
        match Service::open(cx.spec)? {
            Service::Api(client) => client.list(&prefix, cx.deadline).map(drop)?,
            Service::Cli(cli) => cli.list(&prefix, cx.deadline).map(drop)?,
        }
        Ok(ServiceFacts::default())
    }

    fn list_held(&self, cx: &ServiceCx<'_>) -> Result<Vec<HeldMachine>, Fault> {
        let owner = owner_id(cx.state_dir)?;
        let known: Vec<String> = cx
            .known
            .iter()
            .map(|name| sprite_name(&owner, name.as_str()))
            .collect();
        let is_known = |name: &str| known.iter().any(|known| known == name);
        let client = match Service::open(cx.spec)? {
            Service::Api(client) => client,
            Service::Cli(cli) => {
                let names = cli.list(&name_prefix(&owner), cx.deadline)?.into_iter();
                // The program lists no labels, so only the registry proves that a machine is ours.
                return Ok(names
                    .map(|name| HeldMachine {
                        claim: if is_known(&name) {
                            Claim::InUse
                        } else {
                            Claim::Foreign
                        },
                        state: String::new(),
                        name,
                    })
                    .collect());
            }
        };
        let made = client.list_made(&owner, &is_known, now(), cx.deadline)?;
        Ok(made
            .into_iter()
            .map(|sprite| HeldMachine {
                name: sprite.name,
                state: sprite.status.unwrap_or_default(),
                claim: match sprite.claim {
                    crate::Claim::Kept => Claim::InUse,
                    crate::Claim::Unknown | crate::Claim::Expired => Claim::Left,
                    crate::Claim::NotOurs => Claim::Foreign,
                },
            })
            .collect())
    }

    fn destroy(&self, cx: &ServiceCx<'_>, name: &Name) -> Result<(), Fault> {
        if given_name(cx.spec).is_some() {
            // The machine is the user's.
            return Ok(());
        }
        let name = sprite_name(&owner_id(cx.state_dir)?, name.as_str());
        Service::open(cx.spec)?.destroy(&name, cx.deadline)
    }

    fn remove_held(&self, cx: &ServiceCx<'_>, machine: &HeldMachine) -> Result<(), Fault> {
        let service = Service::open(cx.spec)?;
        let owner = owner_id(cx.state_dir)?;
        // A sandbox may have started between the listing and the user's answer.
        let needs = |name: &Name| sprite_name(&owner, name.as_str()) == machine.name;
        if cx.known.iter().any(needs) {
            return Err(still_needed(&machine.name));
        }
        if let Service::Api(client) = &service {
            match client.get(&machine.name, cx.deadline)? {
                Some(sprite) if !sprite.is_owned_by(&owner) => {
                    return Err(still_needed(&machine.name));
                }
                Some(_) => {}
                None => return Ok(()),
            }
        }
        service.destroy(&machine.name, cx.deadline)
    }

    fn create(&self, cx: &CreateCx<'_>, _: Begun) -> Result<GuestStream, Fault> {
        let service = Service::open(cx.spec)?;
        let (machine, is_new) = open_machine(service, cx)?;
        let renewal = machine.keep_wanted(cx);
        match renewal.and_then(|renewal| Ok((bring_up(cx, &machine)?, renewal))) {
            Ok((guest, renewal)) => {
                guest.into_stream(report(cx, &machine), machine.release(renewal))
            }
            Err(fault) => {
                if is_new {
                    // The machine is unused. If it cannot be destroyed, `prune` finds it.
                    let _ = machine.destroy();
                }
                Err(fault)
            }
        }
    }
}

/// Starts the guest in a machine.
fn bring_up(cx: &CreateCx<'_>, machine: &Machine) -> Result<LinkedGuest, Fault> {
    let times = options::times(cx.spec);
    // A first session that breaks may leave a guest in its directory, so the next attempt uses
    // another.
    let run_dir = Arc::new(Mutex::new(String::new()));
    let shell = |command: fn(&str) -> String, is_first: bool| -> BringUp {
        let (cwd, is_resumed) = (start_dir(cx.spec, cx.name), cx.is_resumed);
        let run_dir = Arc::clone(&run_dir);
        Box::new(move |reader, writer, deadline| {
            let command = {
                let mut run_dir = run_dir.lock().unwrap_or_else(PoisonError::into_inner);
                if is_first {
                    *run_dir = new_run_dir();
                }
                command(&run_dir)
            };
            let place = GuestPlace {
                cwd: Some(&cwd),
                // If the files of an earlier life are missing, a new empty directory would look as
                // if all had been deleted.
                makes_cwd: !is_resumed,
                guest_dir: None,
                command: &command,
            };
            bring_guest(reader, writer, place, deadline)
        })
    };
    let first = shell(|run_dir| format!("serve --resume {run_dir}"), true);
    let again = shell(|run_dir| format!("link {run_dir}"), false);
    let name = machine.name.clone();
    let connect: Box<dyn Connect> = match &machine.service {
        Service::Api(client) => {
            let client = client.clone();
            Box::new(SpriteConnect::new(client, name, first, again, times.window))
        }
        Service::Cli(cli) => Box::new(CliConnect::new(Arc::clone(cli), name, first, again)),
    };
    // The service does not record the traffic of an open session, so sessions need no rotation.
    let sizes = Sizes {
        rotate: None,
        ..Sizes::default()
    };
    carry(connect, times, sizes, cx.deadline)
}

impl Machine {
    fn destroy(&self) -> Result<(), Fault> {
        self.service
            .destroy(&self.name, Instant::now() + DESTROY_WAIT)
    }

    /// Renews the label of a machine of ours until the returned value is dropped. None if the
    /// machine is not ours or the transport writes no labels.
    fn keep_wanted(&self, cx: &CreateCx<'_>) -> Result<Option<Renewal>, Fault> {
        // The service's program writes no labels.
        let (true, Service::Api(client)) = (self.is_ours, &self.service) else {
            return Ok(None);
        };
        let owner = owner_id(cx.state_dir)?;
        let (client, name) = (client.clone(), self.name.clone());
        let renew = move || {
            let deadline = Instant::now() + RENEWAL_WAIT;
            client.renew(&name, &owner, now() + KEPT_FOR.as_secs(), deadline)
        };
        Renewal::start(RenewalTimes::default(), Box::new(renew)).map(Some)
    }

    /// Returns the action at the end of a sandbox: destroys a machine of ours, unless it may hold
    /// work that was not fetched.
    fn release(self, renewal: Option<Renewal>) -> Release {
        Box::new(move |end| match (self.is_ours, end) {
            (true, GuestEnd::Closed) => self.destroy(),
            (true, GuestEnd::Halted) => {
                // The registry decides about a machine that it knows; the label informs every other
                // client.
                let _ = renewal.as_ref().map(Renewal::renew_now);
                Ok(())
            }
            (true, GuestEnd::Lost) => Ok(()),
            (false, _) => {
                // The machine stays, so wait until the guest has been told to end.
                await_goodbyes(GOODBYE_WAIT);
                Ok(())
            }
        })
    }
}

/// Creates or finds the machine. The second value is true if it was created.
fn open_machine(service: Service, cx: &CreateCx<'_>) -> Result<(Machine, bool), Fault> {
    if let Service::Cli(cli) = &service {
        cli.check(cx.deadline)?;
    }
    if let Some(name) = given_name(cx.spec) {
        if !service.has(name, cx.deadline)? {
            return Err(Fault::failed(
                Code::SandboxNotFound,
                format!("there is no Sprite `{name}`"),
            )
            .remedy("correct the name, or leave it out for a new one"));
        }
        let machine = Machine {
            service,
            name: name.to_owned(),
            is_ours: false,
        };
        return Ok((machine, false));
    }
    let owner = owner_id(cx.state_dir)?;
    let name = sprite_name(&owner, cx.name.as_str());
    if cx.is_resumed && !service.has(&name, cx.deadline)? {
        return Err(Fault::failed(
            Code::SandboxNotFound,
            format!(
                "the Sprite `{name}` is gone, with the files of the sandbox `{}`",
                cx.name
            ),
        )
        .remedy(format!("`glovebox kill {}` forgets it", cx.name)));
    }
    let machine = Machine {
        service,
        name,
        is_ours: true,
    };
    let is_new = match &machine.service {
        Service::Cli(cli) => {
            check_network_of_cli(cx.spec)?;
            if !cx.is_resumed {
                cli.create(&machine.name, cx.deadline)?;
            }
            !cx.is_resumed
        }
        Service::Api(client) => {
            let rules = policy(cx.spec)?;
            let labels = labels(&owner, now() + KEPT_FOR.as_secs());
            let wanted = NewSprite {
                name: &machine.name,
                owner: &owner,
                labels: &labels,
                is_known: cx.is_resumed,
            };
            let created = client.create_or_get(&wanted, cx.deadline)?;
            if !created.is_new {
                // The registry decides about a machine that it knows, so an outdated label does no
                // harm here.
                let until = now() + KEPT_FOR.as_secs();
                let _ = client.renew(&machine.name, &owner, until, cx.deadline);
            }
            // Set the policy before the guest starts, so that no command has a wider network.
            if let Err(fault) = client.set_policy(&machine.name, &rules, cx.deadline) {
                if created.is_new {
                    let _ = machine.destroy();
                }
                return Err(fault);
            }
            created.is_new
        }
    };
    Ok((machine, is_new))
}

/// Refuses any network but the service's default: its program sets no policy.
fn check_network_of_cli(spec: &SandboxSpec) -> Result<(), Fault> {
    if spec.jail.net == Net::Host {
        return Ok(());
    }
    Err(Fault::refused(
        Code::Unsupported,
        "the program `sprite` sets no network policy, so the network is as the service gives it",
    )
    .remedy([
        "take that with ".into(),
        Setting::Net.of("host"),
        ", or use the service without the program: ".into(),
        Setting::Carrier.of("websocket"),
    ]))
}

/// Returns the rules of the service for the network of a spec.
///
/// # Errors
/// `unsupported` for rules that a policy of names cannot express.
fn policy(spec: &SandboxSpec) -> Result<Vec<PolicyRule>, Fault> {
    match spec.jail.net {
        Net::None => Ok(vec![PolicyRule::deny_others()]),
        Net::Host => Ok(Vec::new()),
        Net::Egress => {
            let mut rules = Vec::new();
            let allowed = spec.egress.allowed().iter();
            let denied = spec.egress.denied().iter();
            for (rule, action) in allowed
                .map(|rule| (rule, PolicyAction::Allow))
                .chain(denied.map(|rule| (rule, PolicyAction::Deny)))
            {
                let domain = name_of(rule)?;
                rules.push(PolicyRule { domain, action });
            }
            rules.push(PolicyRule::deny_others());
            rules.dedup();
            Ok(rules)
        }
    }
}

/// Returns the name in a rule that has only a name and a web port.
///
/// # Errors
/// `unsupported` for any other rule.
fn name_of(rule: &Rule) -> Result<String, Fault> {
    let text = rule.to_string();
    let name = match rule.port() {
        Some(port) if WEB_PORTS.contains(&port) => text.strip_suffix(&format!(":{port}")),
        Some(_) => None,
        None => Some(text.as_str()),
    };
    let is_name = |name: &&str| {
        let host = name.strip_prefix("*.").unwrap_or(name);
        host.parse::<IpAddr>().is_err() && !host.contains(['=', ':', '[', '*'])
    };
    name.filter(is_name).map(str::to_owned).ok_or_else(|| {
        Fault::refused(
            Code::Unsupported,
            format!("a Sprite's network goes by public names with the ports 80 and 443, and `{rule}` is another rule"),
        )
        .remedy("name a host without port and address, or use the native backend")
    })
}

/// Returns the name of the machine of a sandbox.
pub(crate) fn machine_name(cx: &ServiceCx<'_>, name: &Name) -> Result<String, Fault> {
    match given_name(cx.spec) {
        Some(given) => Ok(given.to_owned()),
        None => Ok(sprite_name(&owner_id(cx.state_dir)?, name.as_str())),
    }
}

/// Returns the seconds since 1970.
fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Returns the name of an existing Sprite that the spec names.
pub(crate) fn given_name(spec: &SandboxSpec) -> Option<&str> {
    spec.option(NAME.name).first().map(String::as_str)
}

fn report(cx: &CreateCx<'_>, machine: &Machine) -> Report {
    let mut report = Report::new(DECLARATION.name, cx.name.as_str());
    report.limits = unheld_limits(cx.spec, "the service decides");
    let network = match (machine.is_ours, cx.spec.jail.net) {
        (false, _) => "as it was found".to_owned(),
        (true, Net::None) => "the service's word: no name is resolved".to_owned(),
        (true, Net::Egress) => "the service's word: listed names only".to_owned(),
        (true, Net::Host) if matches!(machine.service, Service::Cli(_)) => {
            "the service's word: as it gives it, since its program sets no policy".to_owned()
        }
        (true, Net::Host) => "the service's word: no rule".to_owned(),
    };
    let network_state = match (machine.is_ours, cx.spec.jail.net) {
        (true, Net::None | Net::Egress) => LimitState::Approximate,
        _ => LimitState::Absent,
    };
    report.wall(
        "machine",
        LimitState::Approximate,
        format!(
            "the service's word: a microVM of its own, `{}`",
            machine.name
        ),
    );
    report.wall("network", network_state, network);
    report.wall(
        "files",
        LimitState::Approximate,
        "the service's word: a copy is there",
    );
    report.wall(
        "machine control",
        LimitState::Absent,
        "commands can keep the machine awake and make checkpoints of it",
    );
    report
}

fn check_name(text: &str) -> Result<(), String> {
    if is_name(text) {
        Ok(())
    } else {
        Err("a Sprite's name has lower-case letters, digits and hyphens, at most 63".to_owned())
    }
}
