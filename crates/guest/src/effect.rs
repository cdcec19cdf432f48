//! Next action of a request's state machine, returned to the event loop.

use glovebox_proto::{Fault, Reply};

/// Next action for a request. `S` is a step that may block; a worker runs it.
pub(crate) enum Effect<S> {
    /// Nothing to do until credit, room, data or a result arrives.
    Wait,
    /// Poll the request again in the next turn.
    Again,
    /// Have a worker run this step.
    Step(S),
    /// Send this answer and close the request.
    Answer(Box<Result<Reply, Fault>>),
}

impl<S> Effect<S> {
    /// Converts the step with `form`.
    pub(crate) fn map_step<T>(self, form: impl FnOnce(S) -> T) -> Effect<T> {
        match self {
            Self::Wait => Effect::Wait,
            Self::Again => Effect::Again,
            Self::Step(step) => Effect::Step(form(step)),
            Self::Answer(answer) => Effect::Answer(answer),
        }
    }
}
