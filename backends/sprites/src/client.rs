//! REST part of the service: Sprites, their labels, network policies and checkpoints.

use crate::address::BaseUrl;
use crate::failure::CallFailure;
use crate::http::{Call, Http, parse, within};
use crate::names::{LABEL, owner_label, with_until};
use crate::token::TokenSource;
use glovebox_carrier::{runtime, show_message};
use glovebox_proto::{Code, Fault};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Entries on a page of a listing.
const PAGE: &str = "50";
/// Maximum number of pages of a listing that are read.
const MAX_PAGES: usize = 1000;
/// Interval between two checks for the end of a destroyed Sprite.
const GONE_PAUSE: Duration = Duration::from_millis(250);
/// Maximum length of a line of an event stream, in bytes.
const MAX_LINE_BYTES: usize = 64 << 10;
/// Maximum length of an event stream, in bytes.
const MAX_EVENT_BYTES: usize = 4 << 20;

/// Client of the service with one token. Clones share it. Every call blocks, until its deadline at
/// most.
#[derive(Debug, Clone)]
pub struct Client {
    http: Arc<Http>,
}

/// Sprite as the service describes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Sprite {
    /// Name of the Sprite in the organization.
    pub name: String,
    /// State: `cold`, `warm`, `running`, or another word of the service. None in short entries of
    /// listings.
    #[serde(default)]
    pub status: Option<String>,
    /// Labels of the Sprite. None if the service reports no labels.
    #[serde(default)]
    pub labels: Option<Vec<String>>,
    /// Time of creation, as the service writes it.
    #[serde(default)]
    pub created_at: Option<String>,
}

impl Sprite {
    /// Returns true if its labels prove that it belongs to the owner.
    pub fn is_owned_by(&self, owner: &str) -> bool {
        let label = owner_label(owner);
        self.labels
            .as_ref()
            .is_some_and(|labels| labels.contains(&label))
    }

    /// Returns true if the service keeps no labels on it, so that they prove nothing.
    fn lacks_labels(&self) -> bool {
        self.labels
            .as_ref()
            .is_none_or(|labels| !labels.iter().any(|label| label.starts_with(LABEL)))
    }
}

/// Description of a Sprite to create.
#[derive(Debug, Clone)]
pub struct NewSprite<'a> {
    /// Name of the Sprite.
    pub name: &'a str,
    /// Id of the state directory that it will belong to.
    pub owner: &'a str,
    /// Labels of the Sprite.
    pub labels: &'a [String],
    /// True if the registry knows it as one of its own. That decides if the service keeps no
    /// labels.
    pub is_known: bool,
}

/// Result of [`Client::create_or_get`].
#[derive(Debug, Clone)]
pub struct OpenedSprite {
    /// The Sprite.
    pub sprite: Sprite,
    /// True if this call created it.
    pub is_new: bool,
}

/// Rule of a network policy. The rule with the most exact name decides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyRule {
    /// Name, `*.name`, or `*`.
    pub domain: String,
    /// Effect of the rule.
    pub action: PolicyAction,
}

/// Effect of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyAction {
    /// The name is resolved and may be reached.
    Allow,
    /// The name is refused.
    Deny,
}

impl PolicyRule {
    /// Creates a rule that allows a name.
    pub fn allow(domain: impl Into<String>) -> Self {
        Self {
            domain: domain.into(),
            action: PolicyAction::Allow,
        }
    }

    /// Creates a rule that refuses every name without a rule of its own.
    pub fn deny_others() -> Self {
        Self {
            domain: "*".to_owned(),
            action: PolicyAction::Deny,
        }
    }
}

/// Checkpoint that the service keeps of a Sprite's files.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServiceCheckpoint {
    /// Id, such as `v3`.
    pub id: String,
    /// Time of creation, as the service writes it.
    #[serde(default)]
    pub create_time: Option<String>,
    /// Comment that was given at its creation.
    #[serde(default)]
    pub comment: Option<String>,
    /// Problem of the checkpoint. Empty or None if it can be restored.
    #[serde(default)]
    pub health: Option<String>,
}

/// Id in a listing of checkpoints that stands for the present state.
const CURRENT: &str = "Current";

impl Client {
    /// Creates a client. The token is read from `source` now, and once more if the service refuses
    /// it.
    ///
    /// # Errors
    /// Those of `source`; `io` if no connection can be made at all.
    pub fn new(base: BaseUrl, source: TokenSource) -> Result<Self, Fault> {
        Ok(Self {
            http: Arc::new(Http::new(base, source)?),
        })
    }

    /// Returns the address of the service.
    pub fn base_url(&self) -> &BaseUrl {
        self.http.base()
    }

    pub(crate) fn http(&self) -> &Arc<Http> {
        &self.http
    }

    /// Creates a Sprite, or returns the one with this name if it belongs to the owner.
    ///
    /// # Errors
    /// `already-exists` if it belongs to another owner; `not-authenticated`, `rate-limited`,
    /// `too-many-sandboxes`.
    pub fn create_or_get(
        &self,
        wanted: &NewSprite<'_>,
        deadline: Instant,
    ) -> Result<OpenedSprite, Fault> {
        let what = format!("create the Sprite `{}`", wanted.name);
        // A retry finds the Sprite of an attempt whose response was lost, and recognises it by its
        // label.
        let call = Call::new(Method::POST, &[], what.clone())
            .body(json!({"name": wanted.name, "labels": wanted.labels}))
            .repeatable();
        let failure = match self.call(&call, deadline) {
            Ok((status, body)) => {
                return Ok(OpenedSprite {
                    sprite: parse(&what, &body)?,
                    is_new: status == 201,
                });
            }
            Err(failure) if failure.has_status(&[400, 409]) => failure,
            Err(failure) => return Err(failure.fault),
        };
        match self.get(wanted.name, deadline)? {
            Some(sprite)
                if sprite.is_owned_by(wanted.owner)
                    || (wanted.is_known && sprite.lacks_labels()) =>
            {
                Ok(OpenedSprite {
                    sprite,
                    is_new: false,
                })
            }
            Some(_) => Err(Fault::refused(
                Code::AlreadyExists,
                format!(
                    "there is a Sprite `{}` already, and it was not made from here",
                    wanted.name
                ),
            )
            .remedy("take another name, or name the Sprite as one that exists")),
            None => Err(failure.fault),
        }
    }

    /// Returns a Sprite. None if there is none with this name.
    pub fn get(&self, name: &str, deadline: Instant) -> Result<Option<Sprite>, Fault> {
        let what = format!("look at the Sprite `{name}`");
        let call = Call::new(Method::GET, &[name], what.clone());
        match self.call(&call, deadline) {
            Ok((_, body)) => Ok(Some(parse(&what, &body)?)),
            Err(failure) if failure.has_status(&[404, 410]) => Ok(None),
            Err(failure) => Err(failure.fault),
        }
    }

    /// Returns all Sprites whose names begin with `prefix`. Entries may be short; [`Client::get`]
    /// has the labels.
    pub fn list(&self, prefix: &str, deadline: Instant) -> Result<Vec<Sprite>, Fault> {
        let what = "list the Sprites".to_owned();
        let mut sprites = Vec::new();
        let mut token: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let mut call = Call::new(Method::GET, &[], what.clone());
            call.query.push(("max_results", PAGE.to_owned()));
            if !prefix.is_empty() {
                call.query.push(("prefix", prefix.to_owned()));
            }
            if let Some(token) = &token {
                call.query.push(("continuation_token", token.clone()));
            }
            let (_, body) = self.call(&call, deadline)?;
            let page: Page = parse(&what, &body)?;
            // The service may ignore the prefix, so filter again.
            let fitting = page.sprites.unwrap_or_default().into_iter();
            sprites.extend(fitting.filter(|sprite| sprite.name.starts_with(prefix)));
            let next = page
                .next_continuation_token
                .filter(|next| page.has_more && !next.is_empty());
            if next.is_none() || next == token {
                return Ok(sprites);
            }
            token = next;
        }
        Err(CallFailure::answer(&what, "the listing does not end").fault)
    }

    /// Replaces the labels of a Sprite.
    pub fn set_labels(
        &self,
        name: &str,
        labels: &[String],
        deadline: Instant,
    ) -> Result<Sprite, Fault> {
        let what = format!("label the Sprite `{name}`");
        let call = Call::new(Method::PUT, &[name], what.clone()).body(json!({"labels": labels}));
        let (_, body) = self.call(&call, deadline)?;
        Ok(parse(&what, &body)?)
    }

    /// Sets the time until which a Sprite of the owner is needed, in seconds since 1970. Its other
    /// labels stay. Does nothing to a Sprite that does not exist or does not carry the owner's
    /// label.
    pub fn renew(
        &self,
        name: &str,
        owner: &str,
        until: u64,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let Some(sprite) = self.get(name, deadline)? else {
            return Ok(());
        };
        if !sprite.is_owned_by(owner) {
            return Ok(());
        }
        let labels = with_until(sprite.labels.unwrap_or_default(), until);
        self.set_labels(name, &labels, deadline).map(drop)
    }

    /// Destroys a Sprite with its files and waits until the service does not list it any longer.
    /// Returns false if there was none.
    ///
    /// # Errors
    /// `timed-out` if the service still has it at the deadline.
    pub fn destroy(&self, name: &str, deadline: Instant) -> Result<bool, Fault> {
        let what = format!("destroy the Sprite `{name}`");
        let existed = match self.call(&Call::new(Method::DELETE, &[name], what.clone()), deadline) {
            Ok(_) => true,
            Err(failure) if failure.has_status(&[404, 410]) => false,
            Err(failure) => return Err(failure.fault),
        };
        while self.get(name, deadline)?.is_some() {
            if Instant::now() + GONE_PAUSE >= deadline {
                return Err(Fault::failed(
                    Code::TimedOut,
                    format!(
                        "the Sprite `{name}` was to be destroyed, and the service still has it"
                    ),
                )
                .retryable());
            }
            std::thread::sleep(GONE_PAUSE);
        }
        Ok(existed)
    }

    /// Sets the network policy of a Sprite, reads it back and compares it.
    ///
    /// # Errors
    /// `self-test-failed` if the policy that is read back differs.
    pub fn set_policy(
        &self,
        name: &str,
        rules: &[PolicyRule],
        deadline: Instant,
    ) -> Result<(), Fault> {
        let what = format!("set the network policy of the Sprite `{name}`");
        let call = Call::new(Method::POST, &[name, "policy", "network"], what)
            .body(json!({"rules": rules}))
            .repeatable();
        self.call(&call, deadline)?;
        if !self.has_policy(name, rules, deadline)? {
            return Err(Fault::failed(
                Code::SelfTestFailed,
                format!("the Sprite `{name}` has another network policy than was set"),
            ));
        }
        Ok(())
    }

    fn has_policy(
        &self,
        name: &str,
        rules: &[PolicyRule],
        deadline: Instant,
    ) -> Result<bool, Fault> {
        let what = format!("read the network policy of the Sprite `{name}`");
        let call = Call::new(Method::GET, &[name, "policy", "network"], what.clone());
        let (_, body) = self.call(&call, deadline)?;
        let policy: Policy = parse(&what, &body)?;
        // Rules of other kinds, such as included lists, cannot be ours, so the policy differs.
        let found: Option<BTreeSet<PolicyRule>> = policy
            .rules
            .unwrap_or_default()
            .into_iter()
            .map(|rule| serde_json::from_value(rule).ok())
            .collect();
        // The most exact name decides, so the order has no meaning.
        Ok(found.is_some_and(|found| found == rules.iter().cloned().collect()))
    }

    /// Creates a checkpoint of a Sprite's files and returns its id.
    pub fn checkpoint(
        &self,
        name: &str,
        comment: &str,
        deadline: Instant,
    ) -> Result<String, Fault> {
        let what = format!("make a checkpoint of the Sprite `{name}`");
        let call = Call::new(Method::POST, &[name, "checkpoint"], what.clone())
            .body(json!({"comment": comment}));
        let lines = self.follow(call, deadline)?;
        lines
            .iter()
            .rev()
            .find_map(|line| checkpoint_id(line))
            .ok_or_else(|| CallFailure::answer(&what, "it names no checkpoint").fault)
    }

    /// Returns the checkpoints of a Sprite, in the order of the service, without the entry for the
    /// present state.
    pub fn checkpoints(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<Vec<ServiceCheckpoint>, Fault> {
        let what = format!("list the checkpoints of the Sprite `{name}`");
        let call = Call::new(Method::GET, &[name, "checkpoints"], what.clone());
        let (_, body) = self.call(&call, deadline)?;
        let checkpoints: Option<Vec<ServiceCheckpoint>> = parse(&what, &body)?;
        let mut checkpoints = checkpoints.unwrap_or_default();
        checkpoints.retain(|checkpoint| checkpoint.id != CURRENT);
        Ok(checkpoints)
    }

    /// Restores a Sprite's files to a checkpoint. The machine restarts: every exec session ends.
    pub fn restore(&self, name: &str, id: &str, deadline: Instant) -> Result<(), Fault> {
        let what = format!("restore the checkpoint `{id}` of the Sprite `{name}`");
        let call = Call::new(Method::POST, &[name, "checkpoints", id, "restore"], what);
        self.follow(call, deadline).map(|_| ())
    }

    fn call(
        &self,
        call: &Call,
        deadline: Instant,
    ) -> Result<(reqwest::StatusCode, Vec<u8>), CallFailure> {
        let (http, call) = (Arc::clone(&self.http), call.clone());
        runtime::run(async move { http.call(&call, deadline).await })?
    }

    /// Reads an event stream to its end and returns the texts in it.
    fn follow(&self, call: Call, deadline: Instant) -> Result<Vec<String>, Fault> {
        let http = Arc::clone(&self.http);
        let lines = runtime::run(async move {
            let mut response = http.open(&call, deadline).await?;
            let mut events = Events::default();
            while let Some(chunk) = within(&call.what, deadline, response.chunk())
                .await?
                .map_err(|error| CallFailure::transport(&call.what, &error.without_url()))?
            {
                events
                    .push(&chunk)
                    .map_err(|why| CallFailure::answer(&call.what, why))?;
            }
            events.finish(&call.what)
        })?;
        Ok(lines?)
    }
}

#[derive(Deserialize)]
struct Page {
    sprites: Option<Vec<Sprite>>,
    #[serde(default)]
    has_more: bool,
    #[serde(default)]
    next_continuation_token: Option<String>,
}

#[derive(Deserialize)]
struct Policy {
    rules: Option<Vec<serde_json::Value>>,
}

#[derive(Deserialize)]
struct EventLine {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    data: Option<String>,
    #[serde(default)]
    error: Option<String>,
}

/// Decoder of an event stream: lines of JSON.
#[derive(Default)]
struct Events {
    unread: Vec<u8>,
    total: usize,
    texts: Vec<String>,
    last: Option<EventLine>,
}

impl Events {
    fn push(&mut self, chunk: &[u8]) -> Result<(), &'static str> {
        self.total += chunk.len();
        self.unread.extend_from_slice(chunk);
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            self.read_line(&line)?;
        }
        if self.unread.len() > MAX_LINE_BYTES || self.total > MAX_EVENT_BYTES {
            return Err("its events are too long");
        }
        Ok(())
    }

    fn read_line(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        let event: EventLine =
            serde_json::from_slice(line).map_err(|_| "a line of it is no event")?;
        self.texts.extend(event.data.clone());
        self.last = Some(event);
        Ok(())
    }

    /// Returns the result of the stream by its last event: an earlier error is only advice.
    fn finish(mut self, what: &str) -> Result<Vec<String>, CallFailure> {
        let rest = std::mem::take(&mut self.unread);
        self.read_line(&rest)
            .map_err(|why| CallFailure::answer(what, why))?;
        match self.last {
            Some(event) if event.kind == "complete" => Ok(self.texts),
            Some(event) if event.kind == "error" => {
                let text = event.error.or(event.data).unwrap_or_default();
                let text = show_message(text.as_bytes());
                Err(Fault::failed(Code::Io, format!("cannot {what}: {text}")).into())
            }
            _ => Err(CallFailure::answer(what, "it ended before it was complete")),
        }
    }
}

/// Finds the id in "Checkpoint v3 created"; no other event carries it.
fn checkpoint_id(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        if word == "Checkpoint" {
            let id = words.next()?;
            let is_id = id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            return (is_id && words.next() == Some("created")).then(|| id.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(text: &str, cut: usize) -> Result<Vec<String>, String> {
        let mut events = Events::default();
        for piece in text.as_bytes().chunks(cut) {
            events.push(piece).map_err(str::to_owned)?;
        }
        events
            .finish("do it")
            .map_err(|failure| failure.fault.message)
    }

    #[test]
    fn stream_is_judged_by_its_last_event() {
        let good = "{\"type\":\"error\",\"error\":\"advice\"}\n\n\
                    {\"type\":\"complete\",\"data\":\"Checkpoint v8 created\"}";
        for cut in [1, 7, 1000] {
            let texts = finish(good, cut).unwrap();
            assert_eq!(checkpoint_id(&texts[0]).as_deref(), Some("v8"));
        }
        let bad = "{\"type\":\"info\",\"data\":\"x\"}\n\
                   {\"type\":\"error\",\"error\":\"no\\u001b space\"}\n";
        assert_eq!(finish(bad, 9).unwrap_err(), "cannot do it: no\\x1b space");
        let cut_off = finish("{\"type\":\"info\",\"data\":\"x\"}\n", 9).unwrap_err();
        assert!(cut_off.contains("ended before"), "{cut_off}");
        assert!(finish("<html>\n", 9).is_err());
    }

    #[test]
    fn checkpoint_id_is_read_from_its_sentence_only() {
        assert_eq!(
            checkpoint_id("  Checkpoint v12 created").as_deref(),
            Some("v12")
        );
        assert_eq!(checkpoint_id("Checkpoint v1/../2 created"), None);
        assert_eq!(checkpoint_id("Checkpoint v1 deleted"), None);
    }
}
