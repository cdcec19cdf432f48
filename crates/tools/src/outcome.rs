//! What a call gives back: one value with a face for the model, one for people, one for programs.

use glovebox_proto::visible;
use serde_json::{Map, Value};
use similar::{Algorithm, TextDiff};
use std::time::Duration;

/// What finding a change may take.
const DIFF_TIME: Duration = Duration::from_millis(200);

/// The result of a call that ran.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutcome {
    /// For the model: bounded, control characters made visible.
    pub text: String,
    /// For models that see: what `text` speaks of.
    pub images: Vec<Image>,
    /// For people.
    pub view: OutcomeView,
    /// For programs: exit, times, counts, paths.
    pub facts: Map<String, Value>,
    /// Whether what was asked for did not succeed, such as a command that exits with 1.
    pub is_error: bool,
}

/// A picture, known by its first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Media type, such as `image/png`.
    pub mime: &'static str,
    /// The file as it is.
    pub bytes: Vec<u8>,
}

/// What a person is shown of a result. Nothing in it acts on a terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OutcomeView {
    /// The text says it all.
    #[default]
    Text,
    /// A change of a file.
    Change(FileChange),
    /// Rows under named columns.
    Table {
        /// Their names.
        columns: Vec<&'static str>,
        /// One value for each column.
        rows: Vec<Vec<String>>,
    },
    /// The pictures of the outcome.
    Image,
}

/// A change of a file, for people. What differs is looked for when somebody wants to see it: most calls are
/// made by models, which know what they wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange(ChangeSource);

#[derive(Debug, Clone, PartialEq, Eq)]
enum ChangeSource {
    Found(String),
    Between { old: String, new: String },
}

impl FileChange {
    /// A change that is known already, as a unified diff that can be shown.
    pub(crate) const fn found(diff: String) -> Self {
        Self(ChangeSource::Found(diff))
    }

    /// What leads from one content to the other.
    pub(crate) const fn between(old: String, new: String) -> Self {
        Self(ChangeSource::Between { old, new })
    }

    /// The hunks of a unified diff, without file names.
    pub fn diff(&self) -> String {
        match &self.0 {
            ChangeSource::Found(diff) => diff.clone(),
            ChangeSource::Between { old, new } => {
                let diff = TextDiff::configure()
                    .algorithm(Algorithm::Myers)
                    .timeout(DIFF_TIME)
                    .diff_lines(old, new)
                    .unified_diff()
                    .to_string();
                visible::lines(diff.as_bytes())
            }
        }
    }
}

impl ToolOutcome {
    /// Something that went well.
    pub(crate) fn ok(text: impl Into<String>, facts: Value) -> Self {
        let facts = match facts {
            Value::Object(facts) => facts,
            _ => Map::new(),
        };
        Self {
            text: text.into(),
            images: Vec::new(),
            view: OutcomeView::Text,
            facts,
            is_error: false,
        }
    }

    /// The same with something else for people.
    #[must_use]
    pub(crate) fn with_view(mut self, view: OutcomeView) -> Self {
        self.view = view;
        self
    }
}
