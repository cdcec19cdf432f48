//! Settings of file transfer to and from a sandbox.

use super::SourcedValue;

/// Files to send to a sandbox and to bring back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sync {
    /// True to send the project to the sandbox.
    pub enabled: SourcedValue<bool>,
    /// Patterns of files that are not sent.
    pub push_exclude: Vec<SourcedValue<String>>,
    /// Patterns of files that are sent although they are hidden by default.
    pub push_include: Vec<SourcedValue<String>>,
    /// Patterns of files that are not brought back.
    pub pull_exclude: Vec<SourcedValue<String>>,
    /// Patterns of files that are brought back although they are left out by default.
    pub pull_include: Vec<SourcedValue<String>>,
    /// True to apply changes when the command succeeds.
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

/// Returns the patterns without their origins.
pub fn texts(list: &[SourcedValue<String>]) -> Vec<String> {
    list.iter().map(|pattern| pattern.value.clone()).collect()
}
