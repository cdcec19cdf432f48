//! Accounting of the tool calls of a session, driven by the session's events. Turns and model
//! responses become trace spans.

use super::App;
use super::accounting::{Accounting, CallEnd, CallPlace, OpenCall};
use super::live::LiveSession;
use super::session_spans::SessionSpans;
use glovebox_agent::Event;
use glovebox_sandbox::Name;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Accounting of one session.
#[derive(Debug)]
pub(crate) struct SessionCalls {
    accounting: Arc<Accounting>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    place: CallPlace,
    open: HashMap<String, OpenCall>,
    spans: SessionSpans,
}

impl SessionCalls {
    /// Creates the accounting of a session whose model has the label `model`.
    pub(crate) fn new(app: &App, live: &LiveSession, placement: &'static str, model: &str) -> Self {
        Self {
            accounting: Arc::clone(&app.accounting),
            state: Mutex::new(State {
                place: CallPlace {
                    user: live.user.clone(),
                    session: Some(live.id.clone()),
                    sandbox: None,
                    placement,
                },
                open: HashMap::new(),
                spans: SessionSpans::new(&live.span, &live.id, model),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the session works in this sandbox from now on.
    pub(crate) fn work_in(&self, sandbox: &Name) {
        let place = &mut self.state().place;
        place.sandbox = Some(sandbox.to_string());
        let network = &self.accounting.network;
        network.watch(sandbox, &place.user, place.session.as_deref());
    }

    /// Records an event of the session.
    pub(crate) fn observe(&self, event: &Event) {
        self.state().spans.observe(event);
        match event {
            Event::CallStarted {
                id,
                tool,
                arguments,
                ..
            } => {
                let mut state = self.state();
                let call = self.accounting.begin_call(
                    state.spans.turn(),
                    &state.place,
                    id.clone(),
                    tool,
                    arguments,
                );
                state.open.insert(id.clone(), call);
            }
            Event::CallFinished {
                id,
                is_error,
                facts,
                text,
                ..
            } => {
                let mut state = self.state();
                // Each call that finishes was started before.
                if let Some(call) = state.open.remove(id) {
                    let end = CallEnd::told(*is_error, facts, text);
                    self.accounting.end_call(&state.place, &call, end);
                }
            }
            _ => {}
        }
    }
}
