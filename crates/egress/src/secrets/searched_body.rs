//! Body of a request that is passed on unchanged and searched for placeholders: values are filled
//! into headers only.

use crate::secrets::secret::SecretName;
use crate::secrets::swap::Vault;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use memchr::memmem;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

/// Maximum number of bytes of a body that are searched.
const MAX_SEARCHED_BYTES: usize = 1 << 20;

/// Request body with an optional search.
#[derive(Debug)]
pub(crate) struct SearchedBody {
    inner: Incoming,
    search: Option<PlaceholderSearch>,
}

impl SearchedBody {
    pub(crate) const fn new(inner: Incoming, search: Option<PlaceholderSearch>) -> Self {
        Self { inner, search }
    }
}

impl Body for SearchedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        if let (Some(search), Some(Ok(frame))) = (&mut this.search, &frame)
            && let Some(data) = frame.data_ref()
        {
            search.push(data);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Search for the first placeholder in a text that arrives in chunks.
#[derive(Debug)]
pub(crate) struct PlaceholderSearch {
    placeholders: Vec<(SecretName, String)>,
    /// End of the previous chunks, in which a placeholder may begin.
    tail: Vec<u8>,
    left_bytes: usize,
    found: FoundPlaceholder,
}

/// Secret whose placeholder was found; empty until then.
pub(crate) type FoundPlaceholder = Arc<OnceLock<SecretName>>;

impl PlaceholderSearch {
    pub(crate) fn new(vault: &Vault) -> Self {
        let placeholders = vault.environment();
        Self {
            placeholders: placeholders
                .map(|(name, placeholder)| (name.clone(), placeholder.to_owned()))
                .collect(),
            tail: Vec::new(),
            left_bytes: MAX_SEARCHED_BYTES,
            found: FoundPlaceholder::default(),
        }
    }

    /// Returns the result, which is final after the body has been sent.
    pub(crate) fn found(&self) -> FoundPlaceholder {
        Arc::clone(&self.found)
    }

    fn push(&mut self, data: &[u8]) {
        if self.found.get().is_some() || self.left_bytes == 0 {
            return;
        }
        let data = &data[..data.len().min(self.left_bytes)];
        self.left_bytes -= data.len();
        self.tail.extend_from_slice(data);
        let is_in = |(_, placeholder): &&(SecretName, String)| {
            memmem::find(&self.tail, placeholder.as_bytes()).is_some()
        };
        if let Some((secret, _)) = self.placeholders.iter().find(is_in) {
            // Not set before: the search stops at the first placeholder.
            let _ = self.found.set(secret.clone());
            return;
        }
        let lengths = self.placeholders.iter().map(|(_, text)| text.len());
        let kept = lengths.max().unwrap_or_default().saturating_sub(1);
        self.tail.drain(..self.tail.len().saturating_sub(kept));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::secret::{Secret, SecretValue};

    fn vault() -> Vault {
        let mut secret: Secret = "KEY=env:KEY@a.test".parse().unwrap();
        secret.set_value(SecretValue::new(b"value-of-key").unwrap());
        Vault::new(&[secret], "00112233445566778899aabbccddeeff").unwrap()
    }

    fn search(vault: &Vault, pieces: &[&[u8]]) -> Option<String> {
        let mut search = PlaceholderSearch::new(vault);
        for piece in pieces {
            search.push(piece);
        }
        search.found().get().map(ToString::to_string)
    }

    #[test]
    fn placeholder_in_a_body_is_found_wherever_packets_end() {
        let vault = vault();
        let placeholder = vault.environment().next().unwrap().1;
        let text = format!(
            r#"{{"key": "{placeholder}", "more": "{}"}}"#,
            "x".repeat(99)
        );
        for at in 0..=text.len() {
            let (head, tail) = text.as_bytes().split_at(at);
            assert_eq!(
                search(&vault, &[head, tail]).as_deref(),
                Some("KEY"),
                "{at}"
            );
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(search(&vault, &bytes).as_deref(), Some("KEY"));
        let without = text.replace(placeholder, "none");
        assert_eq!(search(&vault, &[without.as_bytes()]), None);
        // What stands behind the bound is not looked at.
        let much = vec![b'x'; MAX_SEARCHED_BYTES];
        assert_eq!(search(&vault, &[&much, placeholder.as_bytes()]), None);
    }
}
