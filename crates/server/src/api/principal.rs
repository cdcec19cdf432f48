//! User of a request, and the scopes of the user's token.

use super::error::{ApiError, ApiResult};
use crate::store::{ADMIN, Scope, Scopes};

/// An authenticated user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    pub name: String,
    pub scopes: Scopes,
    /// Digest of the user's token. None for the administrator.
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

    /// Checks that the token has a scope.
    ///
    /// # Errors
    /// `permission-denied` if it has not.
    pub(crate) fn require(&self, scope: Scope) -> ApiResult<()> {
        if self.scopes.has(scope) {
            return Ok(());
        }
        Err(ApiError::forbidden(
            format!("this token is not good for `{}`", scope.as_str()),
            "ask the administrator for a token with that scope",
        ))
    }

    /// Returns true if the principal may see objects of `user`.
    pub(crate) fn sees(&self, user: &str) -> bool {
        self.name == user || self.scopes.has(Scope::Admin)
    }
}
