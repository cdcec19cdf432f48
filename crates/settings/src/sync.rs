//! Settings of what goes into a sandbox and what comes back.

use super::Sourced;

/// What goes in and what comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sync {
    /// Whether the project goes in at all.
    pub enabled: Sourced<bool>,
    /// Patterns of files that stay out.
    pub push_exclude: Vec<Sourced<String>>,
    /// Patterns of files that go in although they would be hidden.
    pub push_include: Vec<Sourced<String>>,
    /// Patterns of files that do not come back.
    pub pull_exclude: Vec<Sourced<String>>,
    /// Patterns of files that come back although they would not.
    pub pull_include: Vec<Sourced<String>>,
    /// Whether changes are applied when the command succeeds.
    pub on_success: Sourced<bool>,
}

impl Default for Sync {
    fn default() -> Self {
        Self {
            enabled: Sourced::default(true),
            push_exclude: Vec::new(),
            push_include: Vec::new(),
            pull_exclude: Vec::new(),
            pull_include: Vec::new(),
            on_success: Sourced::default(false),
        }
    }
}

/// The patterns alone.
pub fn texts(list: &[Sourced<String>]) -> Vec<String> {
    list.iter().map(|pattern| pattern.value.clone()).collect()
}
