//! Pages of the list of sessions: filter by state, limit, and position of the last session.

use super::error::{ApiError, ApiResult};
use glovebox_agent::{SessionInfo, SessionState};
use serde::Deserialize;
use utoipa::IntoParams;

/// Default and maximum number of sessions on a page.
const USUAL_LIMIT: usize = 500;
const MAX_LIMIT: usize = 1000;

/// Which sessions are asked for.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Only those in one of these states, separated by commas.
    state: Option<String>,
    /// At most so many, from 1 to 1000; 500 when it is not said.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Those after the page whose `next` this was.
    after: Option<String>,
}

/// A validated query.
#[derive(Debug)]
pub(super) struct PageRequest {
    /// States to list. Empty lists all.
    states: Vec<SessionState>,
    limit: usize,
    after: Option<Place>,
}

/// Position of a session in the list: newest first, then by id.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    created_unix_ms: u64,
    id: String,
}

impl Place {
    fn of(info: &SessionInfo) -> Self {
        Self {
            created_unix_ms: info.created_unix_ms,
            id: info.id.clone(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (created, id) = text.split_once('.')?;
        Some(Self {
            created_unix_ms: created.parse().ok()?,
            id: id.to_owned(),
        })
    }

    fn is_after(&self, other: &Self) -> bool {
        let by_time = other.created_unix_ms.cmp(&self.created_unix_ms);
        by_time.then_with(|| self.id.cmp(&other.id)).is_gt()
    }
}

impl ListQuery {
    pub(super) fn check(self) -> ApiResult<PageRequest> {
        let known = SessionState::ALL.map(SessionState::as_str).join(", ");
        let words = self.state.as_deref().unwrap_or_default();
        let states = words
            .split(',')
            .filter(|word| !word.is_empty())
            .map(|word| {
                SessionState::named(word).ok_or_else(|| {
                    let word: String = word.escape_debug().take(64).collect();
                    let message = format!("`state`: there is no state `{word}`");
                    ApiError::invalid(message, &format!("the states are {known}"))
                })
            });
        let states = states.collect::<ApiResult<_>>()?;
        let limit = self.limit.unwrap_or(USUAL_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(ApiError::invalid(
                format!("`limit` is not from 1 to {MAX_LIMIT}"),
                "ask for fewer, and for the next page with `after`",
            ));
        }
        let after = self.after.as_deref().map(|text| {
            Place::parse(text).ok_or_else(|| {
                ApiError::invalid(
                    "`after` is not the end of a page",
                    "send `next` of the page before as it is",
                )
            })
        });
        Ok(PageRequest {
            states,
            limit,
            after: after.transpose()?,
        })
    }
}

impl PageRequest {
    /// Returns the sessions of this page from `all`, which must be in list order, and the `after`
    /// value of the next page. None if this is the last page.
    pub(super) fn take<T>(
        &self,
        all: impl Iterator<Item = (SessionInfo, T)>,
    ) -> (Vec<(SessionInfo, T)>, Option<String>) {
        let mut found: Vec<(SessionInfo, T)> = all
            .filter(|(info, _)| self.states.is_empty() || self.states.contains(&info.state))
            .filter(|(info, _)| {
                let after = self.after.as_ref();
                after.is_none_or(|after| Place::of(info).is_after(after))
            })
            .take(self.limit + 1)
            .collect();
        let has_more = found.len() > self.limit;
        found.truncate(self.limit);
        let last = found.last().map(|(info, _)| Place::of(info));
        let next = last.filter(|_| has_more);
        (
            found,
            next.map(|place| format!("{}.{}", place.created_unix_ms, place.id)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn newer_sessions_come_first_and_names_decide_in_the_same_moment() {
        let place = |text| Place::parse(text).unwrap();
        assert!(place("1.s-a").is_after(&place("2.s-a")));
        assert!(place("1.s-b").is_after(&place("1.s-a")));
        assert!(place("1.s-a").is_after(&place("2.s-b")));
        for (one, other) in [("1.s-a", "1.s-a"), ("2.s-z", "1.s-a"), ("1.s-a", "1.s-b")] {
            assert!(!place(one).is_after(&place(other)), "{one} {other}");
        }
        assert_eq!(Place::parse("s-a"), None);
        assert_eq!(Place::parse("x.s-a"), None);
    }
}
