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

impl Sync {
    /// The list behind a key.
    pub(super) fn patterns(&self, key: &str) -> Option<&Vec<Sourced<String>>> {
        match key {
            "sync.push.exclude" => Some(&self.push_exclude),
            "sync.push.include" => Some(&self.push_include),
            "sync.pull.exclude" => Some(&self.pull_exclude),
            "sync.pull.include" => Some(&self.pull_include),
            _ => None,
        }
    }

    /// The same, to add to.
    pub(super) fn patterns_mut(&mut self, key: &str) -> Option<&mut Vec<Sourced<String>>> {
        match key {
            "sync.push.exclude" => Some(&mut self.push_exclude),
            "sync.push.include" => Some(&mut self.push_include),
            "sync.pull.exclude" => Some(&mut self.pull_exclude),
            "sync.pull.include" => Some(&mut self.pull_include),
            _ => None,
        }
    }
}

/// The patterns alone.
pub fn texts(list: &[Sourced<String>]) -> Vec<String> {
    list.iter().map(|pattern| pattern.value.clone()).collect()
}
