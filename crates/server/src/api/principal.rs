//! The user of a request, with what its token is good for.

use super::error::{ApiError, ApiResult};
use crate::store::{ADMIN, Scope, Scopes};

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    pub name: String,
    pub scopes: Scopes,
    /// The digest of the token it has shown; none for the administrator.
    pub token: Option<blake3::Hash>,
}

impl Principal {
    pub(super) fn admin() -> Self {
        Self {
            name: ADMIN.to_owned(),
            scopes: Scopes::new([Scope::Admin, Scope::Apply, Scope::Run]),
            token: None,
        }
    }

    /// Refuses what the token is not good for.
    pub(crate) fn require(&self, scope: Scope) -> ApiResult<()> {
        if self.scopes.has(scope) {
            return Ok(());
        }
        Err(ApiError::forbidden(
            format!("this token is not good for `{}`", scope.as_str()),
            "ask the administrator for a token with that scope",
        ))
    }

    /// Whether what belongs to `user` may be seen.
    pub(crate) fn sees(&self, user: &str) -> bool {
        self.name == user || self.scopes.has(Scope::Admin)
    }
}
