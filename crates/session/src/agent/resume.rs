//! Resumes an earlier session, in its own sandbox or in a new one that the model is told about.

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

/// Message to the model if its sandbox no longer exists.
const NEW_PLACE: &str = "[The sandbox you worked in is gone, with everything you had changed in it. You are in \
    a new one, on the project as it is now: look before you go on.]";

/// Session as recorded in the log, locked for this process.
#[derive(Debug)]
pub struct EarlierSession {
    /// Summary of the session, without its events.
    pub info: SessionInfo,
    /// Conversation so far. Calls without a result have one that says so.
    pub conversation: Conversation,
    events: Vec<Event>,
    lock: SessionLock,
}

impl EarlierSession {
    /// Opens the session `id`: a full id, a prefix of one, or `last`.
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

    /// Returns true if the last message is the model's, so that it has nothing to answer.
    pub fn is_done(&self) -> bool {
        matches!(
            self.conversation.messages.last(),
            Some(Message::Assistant { .. }) | None
        )
    }

    /// Returns the phase in which the session began.
    pub fn phase(&self) -> Option<String> {
        self.events.iter().find_map(|event| match event {
            Event::Started { phase, .. } => phase.clone(),
            _ => None,
        })
    }

    /// Returns the additional text of the system prompt.
    pub fn addition(&self) -> Option<String> {
        self.events.iter().find_map(|event| match event {
            Event::Started { addition, .. } => addition.clone(),
            _ => None,
        })
    }

    /// Returns the file that came with the task.
    pub fn context(&self) -> Option<&ContextData> {
        self.events.iter().find_map(|event| match event {
            Event::Started { context, .. } => context.as_ref(),
            _ => None,
        })
    }

    /// Returns the declaration of the bundle's agent; `None` if the session has no bundle.
    pub fn declared(&self) -> Option<&DeclaredAgent> {
        self.events.iter().find_map(|event| match event {
            Event::Started { declared, .. } => declared.as_ref(),
            _ => None,
        })
    }

    /// Returns true if the session's tools work directly on the user's machine.
    pub fn is_local(&self) -> bool {
        self.info.placement == Placement::Local.as_str()
    }

    /// Returns true if the sandbox was created only for this session.
    pub fn has_own_sandbox(&self) -> bool {
        has_own_sandbox(&self.info, &self.events)
    }

    /// Converts to an open session with this system prompt.
    pub(crate) fn into_session(self, log: Log, system: String) -> AgentSession {
        AgentSession {
            id: self.info.id,
            log,
            lock: self.lock,
            system,
            conversation: self.conversation,
        }
    }

    /// Reopens the session's workplace or opens a new one. Returns true as well if it is new.
    ///
    /// # Errors
    /// The session belongs to a bundle, or the workplace cannot be opened.
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

/// Returns true if the sandbox was created only for the session. One that the user has named is the
/// user's, even if its name looks generated.
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
    /// Resumes an earlier session in `place`. `is_new` is true if that place was created for it
    /// now; `words` are the user's addition.
    ///
    /// # Errors
    /// The log cannot be written, or the sandbox is lost.
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
