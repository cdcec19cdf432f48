//! What a request's state asks of the event loop after it has moved on.

use glovebox_proto::{Fault, Reply};

/// The next thing to do for a request. `S` is a step that may block and is done elsewhere.
pub(crate) enum Effect<S> {
    /// Nothing until credit, room, data or a result arrives.
    Wait,
    /// The request is looked at again in the next turn.
    Again,
    /// A worker does this.
    Step(S),
    /// The request is answered and closed.
    Answer(Box<Result<Reply, Fault>>),
}

impl<S> Effect<S> {
    /// The same with another form of the step.
    pub(crate) fn map_step<T>(self, form: impl FnOnce(S) -> T) -> Effect<T> {
        match self {
            Self::Wait => Effect::Wait,
            Self::Again => Effect::Again,
            Self::Step(step) => Effect::Step(form(step)),
            Self::Answer(answer) => Effect::Answer(answer),
        }
    }
}
