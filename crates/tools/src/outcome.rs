//! Result of a call: one value with a form for the model, one for people, and one for programs.

use glovebox_proto::visible;
use serde_json::{Map, Value};
use similar::{Algorithm, TextDiff};
use std::time::Duration;

/// Maximum time for computing a diff.
const DIFF_TIME: Duration = Duration::from_millis(200);

/// Result of a call that ran.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutcome {
    /// Text for the model. Bounded; control characters are escaped.
    pub text: String,
    /// Images that `text` refers to, for models that accept them.
    pub images: Vec<Image>,
    /// Form for people.
    pub view: OutcomeView,
    /// Form for programs: exit code, times, counts, paths.
    pub facts: Map<String, Value>,
    /// True if the operation did not succeed, for example a command that exits with 1.
    pub is_error: bool,
}

/// Image, recognized by its first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Media type, such as `image/png`.
    pub mime: &'static str,
    /// Unchanged content of the file.
    pub bytes: Vec<u8>,
}

/// Form of a result for people. Contains no control sequences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OutcomeView {
    /// The text suffices.
    #[default]
    Text,
    /// Change of a file.
    Change(FileChange),
    /// Rows under named columns.
    Table {
        /// Names of the columns.
        columns: Vec<&'static str>,
        /// One value for each column.
        rows: Vec<Vec<String>>,
    },
    /// Images of the outcome.
    Image,
}

/// Change of a file, for people. The diff is computed on demand: most calls come from models, which
/// know what they wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange(ChangeSource);

#[derive(Debug, Clone, PartialEq, Eq)]
enum ChangeSource {
    Found(String),
    Between { old: String, new: String },
}

impl FileChange {
    /// Creates a change from a finished unified diff, in which control characters are escaped.
    pub(crate) const fn found(diff: String) -> Self {
        Self(ChangeSource::Found(diff))
    }

    /// Creates the change from one content to another.
    pub(crate) const fn between(old: String, new: String) -> Self {
        Self(ChangeSource::Between { old, new })
    }

    /// Returns the hunks of a unified diff, without file names. Computes them on each call, for up
    /// to 200 ms, unless the diff is finished.
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
    /// Creates a successful outcome. `facts` should be an object; any other value counts as empty.
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

    /// Sets the form for people.
    #[must_use]
    pub(crate) fn with_view(mut self, view: OutcomeView) -> Self {
        self.view = view;
        self
    }
}
