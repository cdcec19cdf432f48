//! Problems of a bundle: a stable code, the place, the source at that place, the reason, and a
//! hint.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// Stable code of a problem. `E_` is an error, `W_` a warning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum ProblemCode { $($(#[doc = $doc])+ #[serde(rename = $text)] $name,)+ }

        impl ProblemCode {
            /// All codes, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the code as it is printed.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// Returns a sentence that describes the code.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+),)+ }
            }
        }
    };
}

codes! {
    /// The file is no JavaScript or TypeScript.
    Parse = "E_PARSE",
    /// The file, or what was read from it, exceeds a bound.
    TooLarge = "E_TOO_LARGE",
    /// The source nests deeper than a bound, or reading it took too many steps.
    TooDeep = "E_TOO_DEEP",
    /// There is no configuration: no exported `createLightfast(...)`.
    NoConfig = "E_NO_CONFIG",
    /// There are several configurations.
    ManyConfigs = "E_MANY_CONFIGS",
    /// The configuration has no agents.
    NoAgents = "E_NO_AGENTS",
    /// A required field is not there.
    FieldMissing = "E_FIELD_MISSING",
    /// A field has a value of the wrong type.
    FieldType = "E_FIELD_TYPE",
    /// A value is only known when the bundle runs.
    DynamicValue = "E_DYNAMIC_VALUE",
    /// Which of several values it is, is only known when the bundle runs.
    Conditional = "E_CONDITIONAL",
    /// A value is changed after its definition.
    Mutated = "E_MUTATED",
    /// A getter, a setter or `__proto__` in an object that is read.
    Getter = "E_GETTER",
    /// A computed key is only known when the bundle runs.
    ComputedKey = "E_COMPUTED_KEY",
    /// What is spread into an object or a list is only known when the bundle runs.
    SpreadDynamic = "E_SPREAD_DYNAMIC",
    /// A value comes from a package that is not known here.
    ImportUnknown = "E_IMPORT_UNKNOWN",
    /// A tool imports a module that tools do not have.
    ImportNotAllowed = "E_IMPORT_NOT_ALLOWED",
    /// A schema uses what cannot be said as a JSON Schema.
    SchemaUnsupported = "E_SCHEMA_UNSUPPORTED",
    /// A value stands where a schema should be.
    SchemaUnrecognised = "E_SCHEMA_UNRECOGNISED",
    /// A tool has no `execute` where one is needed.
    ToolNoExecute = "E_TOOL_NO_EXECUTE",
    /// The `execute` of a tool is no function.
    ToolNotFunction = "E_TOOL_NOT_FUNCTION",
    /// The code of a tool uses a value that cannot be carried along.
    ToolClosure = "E_TOOL_CLOSURE",
    /// The code of a tool uses TypeScript that is more than types, such as a namespace.
    TypeScript = "E_TYPESCRIPT",
    /// A name is empty, too long, or has characters that names cannot have.
    NameInvalid = "E_NAME_INVALID",
    /// A name that means something to every JavaScript object.
    ReservedKey = "E_RESERVED_KEY",
    /// A manifest is none, or a bundle is not what its manifest says.
    Manifest = "E_MANIFEST",
    /// A bundle that was to be run for what it declares did not get there.
    Run = "E_RUN",
    /// A function was recognised by its name or by its file, not by its import.
    Stub = "W_STUB",
    /// Something in the bundle has no effect here.
    Ignored = "W_IGNORED",
    /// The JSON Schema accepts more than the schema in the bundle does.
    SchemaLossy = "W_SCHEMA_LOSSY",
    /// An agent of another library, which is not read.
    AgentNotRead = "W_AGENT_NOT_READ",
    /// The source map is none, or too large.
    SourceMap = "W_SOURCE_MAP",
}

impl ProblemCode {
    /// True if a bundle with this problem is refused.
    pub fn is_error(self) -> bool {
        self.as_str().starts_with('E')
    }
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Problem of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Code.
    pub code: ProblemCode,
    /// Key of the affected agent; `None` if the problem concerns no agent.
    pub agent: Option<String>,
    /// Path of the field, such as `agents.x.tools.hash.inputSchema`; empty for the whole file.
    pub path: String,
    /// Line in the file, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Line of the source at that place, shortened if it is long.
    pub snippet: String,
    /// Start of the place in `snippet`, in characters.
    pub snippet_start: u32,
    /// Length of the place in `snippet`, in characters.
    pub snippet_length: u32,
    /// Reason.
    pub reason: String,
    /// Hint about a fix.
    pub hint: String,
    /// Other places that contribute to the problem.
    pub also: Vec<RelatedPlace>,
    /// Place in the original file, if a source map contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<OriginalPlace>,
}

/// Other place that contributes to a problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelatedPlace {
    /// Line in the file, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Description of the place.
    pub reason: String,
    /// Place in the original file, if a source map contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<OriginalPlace>,
}

/// Place in a file from which a bundle was built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginalPlace {
    /// Name of the file in the source map. It is displayed, and never opened.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Line at that place, shortened if it is long; empty if the map does not contain the file.
    pub snippet: String,
    /// Start of the place in `snippet`, in characters.
    pub snippet_start: u32,
    /// Length of the place in `snippet`, in characters.
    pub snippet_length: u32,
}

impl Problem {
    /// Renders the problem as text with the line of the source. `file` is the user's name for the
    /// bundle. The parts of the problem contain no control characters, so the text has none but
    /// line ends.
    pub fn render(&self, file: &str) -> String {
        let mut text = self.code.to_string();
        if !self.path.is_empty() {
            let _ = write!(text, " {}", self.path);
        }
        let place = place_text(file, self.line, self.column, self.original.as_ref());
        let _ = writeln!(text, " ({place}): {}", self.reason);
        let mapped = self.original.as_ref();
        let frame = match mapped.filter(|original| !original.snippet.is_empty()) {
            Some(at) => (at.line, &at.snippet, at.snippet_start, at.snippet_length),
            None => (
                self.line,
                &self.snippet,
                self.snippet_start,
                self.snippet_length,
            ),
        };
        let (line, snippet, start, length) = frame;
        if !snippet.is_empty() {
            let number = line.to_string();
            let margin = " ".repeat(number.len());
            let before = " ".repeat(start as usize);
            let carets = "^".repeat(length.max(1) as usize);
            let _ = writeln!(text, " {margin} |");
            let _ = writeln!(text, " {number} | {snippet}");
            let _ = writeln!(text, " {margin} | {before}{carets}");
        }
        for other in &self.also {
            let place = place_text(file, other.line, other.column, other.original.as_ref());
            let _ = writeln!(text, "   also {place}: {}", other.reason);
        }
        if !self.hint.is_empty() {
            let _ = writeln!(text, "   hint: {}", self.hint);
        }
        text
    }
}

/// Returns `bundle.js:1:2033`, after the original place if there is one.
fn place_text(file: &str, line: u32, column: u32, original: Option<&OriginalPlace>) -> String {
    let place = format!("{file}:{line}:{column}");
    match original {
        Some(at) => format!(
            "{}:{}:{}, in the bundle {place}",
            at.file, at.line, at.column
        ),
        None => place,
    }
}
