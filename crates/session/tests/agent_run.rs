//! A run of an agent with no terminal: a recorded model, a user in a few lines, and the project itself.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

use glovebox_agent::{
    Approval, Approve, ContextBudget, Ending, Event, Log, Observe, Placement, RecordedModel,
    Secrets, SessionState, ToolCall, ToolServer, read_recording,
};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::{Registry, RegistryConfig, Supervisor};
use glovebox_session::agent::{
    AgentFrontend, AgentRun, AgentUser, AgentWorkplace, ModelConfig, NewSession, OnStop,
};
use glovebox_session::work::WorkContext;
use glovebox_session::{Frontend, Notice};
use glovebox_settings::{Settings, Surroundings};
use glovebox_tools::policy::{Ask, AskHost, HostReply, PermitAnswer, PermitQuestion};
use glovebox_workspace::Watch;
use serde_json::Value;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

const RECORDING: &str = r#"
{"type":"answered","turn":1,"parts":[{"kind":"call","id":"1","name":"Write","arguments":{"path":"a","content":"new"}}]}
{"type":"answered","turn":2,"parts":[{"kind":"text","text":"done"}]}
"#;

/// Says the same to every question.
#[derive(Debug)]
struct SteadyUser {
    says_yes: bool,
    asked: Mutex<Vec<String>>,
}

impl Approve for SteadyUser {
    fn approve(&self, call: &ToolCall) -> Approval {
        self.asked.lock().unwrap().push(call.name.clone());
        if self.says_yes {
            Approval::Yes
        } else {
            Approval::No("not today".to_owned())
        }
    }
}

impl Ask for SteadyUser {
    fn ask(&self, _question: &PermitQuestion<'_>) -> PermitAnswer {
        PermitAnswer::Deny("no rule asks".to_owned())
    }
}

impl AskHost for SteadyUser {
    fn ask_host(&self, _rule: &str) -> HostReply {
        HostReply::Unanswered
    }
}

impl AgentUser for SteadyUser {
    fn approve_nested(&self, _tool: &str, _arguments: &Value) -> Approval {
        Approval::No("there is no script".to_owned())
    }
}

/// Keeps what it is told.
#[derive(Debug)]
struct TestFrontend {
    user: Option<Arc<SteadyUser>>,
    events: Mutex<Vec<&'static str>>,
    failures: Mutex<Vec<String>>,
}

impl Frontend for TestFrontend {
    fn notify(&self, notice: &Notice<'_>) {
        if let Notice::RunFailed(error) = notice {
            self.failures.lock().unwrap().push(error.to_string());
        }
    }

    fn watch_progress(&self) -> Box<Watch<'_>> {
        Box::new(|_| ControlFlow::Continue(()))
    }
}

struct Events<'a>(&'a Mutex<Vec<&'static str>>);

impl Observe for Events<'_> {
    fn observe(&mut self, event: &Event) -> Result<(), Fault> {
        self.0.lock().unwrap().push(event.kind());
        Ok(())
    }
}

impl AgentFrontend for TestFrontend {
    fn observer<'a>(&'a self, _log: &'a Log, _id: &'a str) -> Box<dyn Observe + 'a> {
        Box::new(Events(&self.events))
    }

    fn user(&self, _secrets: &Secrets, _servers: Vec<ToolServer>) -> Option<Arc<dyn AgentUser>> {
        let user = self.user.clone()?;
        Some(user)
    }

    fn has_user(&self) -> bool {
        self.user.is_some()
    }

    fn watch_stop(&self, _id: &str, _on_stop: OnStop) {}

    fn unwatch_stop(&self) -> u32 {
        0
    }

    fn ask_for_more(&self) -> Option<String> {
        None
    }
}

/// Runs the recording in `dir` with this user. How it ended, and what the frontend was told.
fn run(dir: &Path, user: Option<bool>) -> (Ending, Option<Code>, TestFrontend) {
    let project = dir.join("project");
    fs::create_dir(&project).unwrap();
    let host = Surroundings::fixed(dir, &project, &[]);
    let registry = Registry::open(RegistryConfig {
        state_dir: dir.join("state"),
        max_sandboxes: 4,
        seed_maker: Some(glovebox_workspace::SEED_MAKER),
    });
    let user = user.map(|says_yes| SteadyUser {
        says_yes,
        asked: Mutex::default(),
    });
    let frontend = TestFrontend {
        user: user.map(Arc::new),
        events: Mutex::default(),
        failures: Mutex::default(),
    };
    let caller = WorkContext {
        host: &host,
        registry: &Arc::new(registry.unwrap()),
        supervisor: &Supervisor {
            exe: "/no/such/program".into(),
        },
        frontend: &frontend,
    };
    let settings = Settings::default();
    let model = ModelConfig {
        model: Box::new(RecordedModel::new(
            &read_recording(RECORDING).unwrap(),
            "test",
        )),
        secrets: Secrets::default(),
        price: None,
        budget: ContextBudget::default(),
        asked: None,
    };
    let run = AgentRun {
        host: &host,
        settings: &settings,
        project: &project,
        model: &model,
        phase: None,
        addition: None,
        instructions: Vec::new(),
        is_asked: true,
        is_yes: false,
        is_kept: false,
    };
    let placement = Placement::Local;
    let mut place = AgentWorkplace::open(&caller, &settings, &project, placement, None).unwrap();
    let log = Log::open(&dir.join("sessions"), || 0).unwrap();
    let (state, task) = (SessionState::Running, "write a".to_owned());
    let new = NewSession::create(
        log,
        NewSession::random_id(),
        state,
        task,
        &model,
        placement.as_str(),
        &project,
    )
    .unwrap();
    let mut session = run.begin(&place, &frontend, new).unwrap();
    let verdict = run.perform(&mut place, &frontend, &mut session);
    place.end(&frontend);
    assert!(caller.registry.list().unwrap().is_empty());
    let code = verdict.fault.map(|fault| fault.code);
    (verdict.ending, code, frontend)
}

#[test]
fn changes_to_the_users_own_files_are_made_when_the_user_agrees_and_only_then() {
    for says_yes in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (ending, _, frontend) = run(dir.path(), Some(says_yes));
        assert_eq!(ending, Ending::Completed);
        let written = fs::read_to_string(dir.path().join("project/a")).ok();
        assert_eq!(written.as_deref(), says_yes.then_some("new"));
        let user = frontend.user.unwrap();
        assert_eq!(*user.asked.lock().unwrap(), ["Write"]);
        let events = frontend.events.lock().unwrap();
        assert_eq!(events.first(), Some(&"started"), "{events:?}");
        assert_eq!(events.last(), Some(&"ended"), "{events:?}");
    }
}

#[test]
fn with_nobody_to_ask_nothing_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let (ending, code, frontend) = run(dir.path(), None);
    assert_eq!(
        (ending, code),
        (Ending::Failed, Some(Code::InvalidArgument))
    );
    assert!(!dir.path().join("project/a").exists());
    assert_eq!(
        *frontend.failures.lock().unwrap(),
        ["there is nobody to ask before each change"]
    );
}
