//! Server-sent events of an answer, independent of the split into packets and the kind of line
//! ends.
//!
//! In: the bytes of a body. Out: events. A JSON document in place of a stream becomes one event;
//! any other text becomes none, and its beginning is quoted in the error.

use super::{refusal, unreadable};
use crate::model::ModelError;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use sse_stream::{Error, SseByteStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum size of an event, and of a body that is not an event stream.
const MAX_EVENT_BYTES: usize = 16 << 20;
/// Maximum size of the quote of a body without events.
const MAX_QUOTE_BYTES: usize = 1024;

/// Server-sent event.
#[derive(Debug, Default)]
pub(in crate::model) struct Event {
    /// Kind; empty if the server sends none.
    pub(in crate::model) name: String,
    pub(in crate::model) data: String,
}

/// Events of one body.
pub(in crate::model) struct Events<'a> {
    body: Body<'a>,
    /// Beginning of the body, for the error if it has no events.
    quote: Vec<u8>,
    had_any: bool,
}

enum Body<'a> {
    Stream {
        events: SseByteStream<BoxStream<'a, Result<Bytes, BodyError>>>,
        /// Bytes since the last event.
        pending: Arc<AtomicUsize>,
    },
    /// JSON document; `None` after it was returned.
    Document(Option<Vec<u8>>),
}

/// Failure below the events.
#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error("an event of the model server has more than 16 MiB")]
    TooLarge,
    #[error("{0}")]
    Connection(String),
}

impl From<BodyError> for ModelError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge => Self::lasting(format!("{error}; the answer was given up")),
            BodyError::Connection(why) => refusal::connection(&why),
        }
    }
}

impl<'a> Events<'a> {
    /// Reads until the kind of the body is known.
    pub(in crate::model) async fn open<E: std::error::Error>(
        body: impl Stream<Item = Result<Bytes, E>> + Send + 'a,
    ) -> Result<Self, ModelError> {
        let mut body = body
            .map(|packet| packet.map_err(|error| BodyError::Connection(refusal::deepest(&error))))
            .boxed();
        let mut head = Vec::new();
        while first_sign(&head).is_none() && head.len() < MAX_QUOTE_BYTES {
            match body.next().await {
                Some(packet) => head.extend_from_slice(&packet?),
                None => break,
            }
        }
        let quote = head[..head.len().min(MAX_QUOTE_BYTES)].to_vec();
        // No line of an event stream begins with one of these.
        if matches!(first_sign(&head), Some(b'{' | b'[')) {
            while let Some(packet) = body.next().await {
                head.extend_from_slice(&packet?);
                if head.len() > MAX_EVENT_BYTES {
                    return Err(BodyError::TooLarge.into());
                }
            }
            return Ok(Self {
                body: Body::Document(Some(head)),
                quote,
                had_any: false,
            });
        }
        let pending = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&pending);
        let begin = stream::iter([Ok(Bytes::from(head))]);
        // Completes a last event without its blank line. If the event was cut, its JSON does not
        // parse.
        let end = stream::iter([Ok(Bytes::from_static(b"\n\n"))]);
        let counted = begin.chain(body).chain(end).map(move |packet| {
            let packet: Bytes = packet?;
            let before = counter.fetch_add(packet.len(), Ordering::Relaxed);
            // TRUST: a server may send data for ever without an event.
            if before + packet.len() > MAX_EVENT_BYTES {
                return Err(BodyError::TooLarge);
            }
            Ok(packet)
        });
        Ok(Self {
            body: Body::Stream {
                events: SseByteStream::new(counted.boxed()),
                pending,
            },
            quote,
            had_any: false,
        })
    }

    /// Returns the next event with data; `None` at the end of the body.
    pub(in crate::model) async fn next(&mut self) -> Result<Option<Event>, ModelError> {
        match &mut self.body {
            Body::Document(document) => {
                let Some(document) = document.take() else {
                    return Ok(None);
                };
                self.had_any = true;
                let document = String::from_utf8(document).map_err(unreadable)?;
                Ok(Some(Event {
                    name: String::new(),
                    data: document.trim_start_matches('\u{FEFF}').to_owned(),
                }))
            }
            Body::Stream { events, pending } => {
                while let Some(event) = events.next().await {
                    let event = event.map_err(read_error)?;
                    pending.store(0, Ordering::Relaxed);
                    let Some(data) = event.data.filter(|data| !data.trim().is_empty()) else {
                        continue;
                    };
                    self.had_any = true;
                    return Ok(Some(Event {
                        name: event.event.unwrap_or_default(),
                        data,
                    }));
                }
                Ok(None)
            }
        }
    }

    /// Fails if the body had no event.
    pub(in crate::model) fn check_any(&self) -> Result<(), ModelError> {
        if self.had_any {
            return Ok(());
        }
        let quote = refusal::told(&String::from_utf8_lossy(&self.quote));
        let tail = if quote.is_empty() {
            String::new()
        } else {
            format!(": {quote}")
        };
        Err(ModelError::passing(format!(
            "the model server sent no answer that can be read{tail}"
        )))
    }
}

/// Returns the first byte that is neither whitespace nor part of a byte order mark.
fn first_sign(head: &[u8]) -> Option<u8> {
    let head = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
    // A byte order mark that is still incomplete.
    if b"\xEF\xBB\xBF".starts_with(head) {
        return None;
    }
    head.iter()
        .copied()
        .find(|byte| !byte.is_ascii_whitespace())
}

fn read_error(error: Error) -> ModelError {
    match error {
        Error::Body(error) => match error.downcast::<BodyError>() {
            Ok(error) => ModelError::from(*error),
            Err(error) => refusal::connection(&error.to_string()),
        },
        other => unreadable(other),
    }
}
