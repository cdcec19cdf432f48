//! A session that has worked before goes on: in the sandbox it had, or in a new one that it is told of.

use super::{AgentFrontend, AgentRun, AgentSession, AgentWorkplace};
use crate::Error;
use crate::work::WorkContext;
use glovebox_agent::{
    Conversation, DeclaredAgent, Event, Log, Message, Placement, SessionInfo, SessionLock, changed,
};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Name;
use glovebox_settings::Settings;
use glovebox_tools::ContextData;

/// What the model is told when its sandbox could not be found again.
const NEW_PLACE: &str = "[The sandbox you worked in is gone, with everything you had changed in it. You are in \
    a new one, on the project as it is now: look before you go on.]";

/// A session as its log tells it, held for this process.
#[derive(Debug)]
pub struct EarlierSession {
    /// What is known of it without its events.
    pub info: SessionInfo,
    /// What was said. Calls without an end have one that says so.
    pub conversation: Conversation,
    events: Vec<Event>,
    lock: SessionLock,
}

impl EarlierSession {
    /// Reads the session `id`: its name, the beginning of it, or `last`.
    ///
    /// # Errors
    /// `not-found`, `ambiguous-match`, and `busy` while another process works on it.
    pub fn open(log: &Log, id: &str) -> Result<Self, Error> {
        let info = log.find(id)?;
        let lock = log.lock(&info.id)?;
        let logged = log.events(&info.id)?;
        let events: Vec<Event> = logged.into_iter().map(|logged| logged.event).collect();
        Ok(Self {
            conversation: Conversation::from_events(&events),
            info,
            events,
            lock,
        })
    }

    /// Whether the model has nothing left to answer to.
    pub fn is_done(&self) -> bool {
        matches!(
            self.conversation.messages.last(),
            Some(Message::Assistant { .. }) | None
        )
    }

    /// The kind of work it began as.
    pub fn phase(&self) -> Option<String> {
        self.events.iter().find_map(|event| match event {
            Event::Started { phase, .. } => phase.clone(),
            _ => None,
        })
    }

    /// What the model was told in addition.
    pub fn addition(&self) -> Option<String> {
        self.events.iter().find_map(|event| match event {
            Event::Started { addition, .. } => addition.clone(),
            _ => None,
        })
    }

    /// The file that came along with the task.
    pub fn context(&self) -> Option<&ContextData> {
        self.events.iter().find_map(|event| match event {
            Event::Started { context, .. } => context.as_ref(),
            _ => None,
        })
    }

    /// The agent of a bundle that it is, where it is one.
    pub fn declared(&self) -> Option<&DeclaredAgent> {
        self.events.iter().find_map(|event| match event {
            Event::Started { declared, .. } => declared.as_ref(),
            _ => None,
        })
    }

    /// Whether its tools work on the user's machine itself.
    pub fn is_local(&self) -> bool {
        self.info.placement == Placement::Local.as_str()
    }

    /// Whether its sandbox was made for it alone.
    pub fn has_own_sandbox(&self) -> bool {
        has_own_sandbox(&self.info, &self.events)
    }

    /// The session, taken up.
    pub(crate) fn into_session(self, log: Log, system: String) -> AgentSession {
        AgentSession {
            id: self.info.id,
            log,
            lock: self.lock,
            system,
            conversation: self.conversation,
        }
    }

    /// The place it had, or a new one; and whether it is new.
    ///
    /// # Errors
    /// Whatever keeps the place from being there.
    pub fn reopen_place(
        &self,
        caller: &WorkContext<'_>,
        settings: &Settings,
    ) -> Result<(AgentWorkplace, bool), Error> {
        if let Some(declared) = self.declared() {
            return Err(Error::usage(
                format!(
                    "the session {} is of the agent `{}` of a bundle",
                    self.info.id, declared.agent
                ),
                "go on with `glovebox bundle run`, which takes the bundle's file and the session",
            ));
        }
        let open =
            |placement| AgentWorkplace::open(caller, settings, &self.info.project, placement, None);
        if self.is_local() {
            return Ok((open(Placement::Local)?, false));
        }
        if let Some(name) = &self.info.sandbox {
            let name = Name::parse(name)
                .map_err(|error| Fault::failed(Code::InvalidArgument, error.to_string()))?;
            if let Some(place) = AgentWorkplace::resume(caller, &name)? {
                return Ok((place, false));
            }
        }
        Ok((open(Placement::Sandbox)?, true))
    }
}

/// Whether the sandbox was made for the session alone. One that the user gave a name to is the user's,
/// whatever the name looks like.
pub fn has_own_sandbox<'a>(
    session: &SessionInfo,
    events: impl IntoIterator<Item = &'a Event>,
) -> bool {
    session.sandbox.is_some()
        && events
            .into_iter()
            .any(|event| event.own_sandbox() == session.sandbox.as_deref())
}

impl AgentRun<'_> {
    /// Takes up an earlier session in `place`. `is_new` is whether that place was made for it now; `words` are what
    /// the user adds.
    ///
    /// # Errors
    /// When it cannot be written down; when the sandbox is lost.
    pub fn take_up(
        &self,
        place: &AgentWorkplace,
        frontend: &dyn AgentFrontend,
        log: Log,
        earlier: EarlierSession,
        is_new: bool,
        words: Option<&str>,
    ) -> Result<AgentSession, Error> {
        let system = self.system(place, frontend)?;
        let EarlierSession {
            info,
            mut conversation,
            events,
            lock,
        } = earlier;
        let sandbox = place.work.name().map(Name::as_str);
        log.set_sandbox(&info.id, sandbox)?;
        let mut said: Vec<String> = Vec::new();
        let has_begun = events
            .iter()
            .any(|event| matches!(event, Event::Started { .. }));
        if !has_begun {
            said.push(info.task.clone());
        } else if is_new {
            said.push(NEW_PLACE.to_owned());
        }
        let before = events.iter().rev().find_map(|event| match event {
            Event::Started { system, .. } | Event::Resumed { system, .. } => Some(system),
            _ => None,
        });
        said.extend(before.and_then(|before| changed(before, &system)));
        said.extend(words.map(|words| self.model.secrets.clean(words.to_owned())));
        let resumed = Event::Resumed {
            model: self.model.model.label(),
            system: system.clone(),
            own_sandbox: sandbox.filter(|_| is_new).map(str::to_owned),
        };
        {
            let mut observer = frontend.observer(&log, &info.id);
            observer.observe(&resumed)?;
            for text in said {
                observer.observe(&Event::Said { text: text.clone() })?;
                conversation.messages.push(Message::User { text });
            }
        }
        Ok(AgentSession {
            id: info.id,
            log,
            lock,
            system,
            conversation,
        })
    }
}
