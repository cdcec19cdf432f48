//! Settings of what goes into a sandbox and what comes back.

use super::SourcedValue;

/// What goes in and what comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sync {
    /// Whether the project goes in at all.
    pub enabled: SourcedValue<bool>,
    /// Patterns of files that stay out.
    pub push_exclude: Vec<SourcedValue<String>>,
    /// Patterns of files that go in although they would be hidden.
    pub push_include: Vec<SourcedValue<String>>,
    /// Patterns of files that do not come back.
    pub pull_exclude: Vec<SourcedValue<String>>,
    /// Patterns of files that come back although they would not.
    pub pull_include: Vec<SourcedValue<String>>,
    /// Whether changes are applied when the command succeeds.
    pub on_success: SourcedValue<bool>,
}

impl Default for Sync {
    fn default() -> Self {
        Self {
            enabled: SourcedValue::default(true),
            push_exclude: Vec::new(),
            push_include: Vec::new(),
            pull_exclude: Vec::new(),
            pull_include: Vec::new(),
            on_success: SourcedValue::default(false),
        }
    }
}

/// The patterns alone.
pub fn texts(list: &[SourcedValue<String>]) -> Vec<String> {
    list.iter().map(|pattern| pattern.value.clone()).collect()
}
