//! Content of a bundle: agents, their tools, schemas, and the code of tools.

use crate::Json;
use crate::problem::Problem;
use serde::{Deserialize, Serialize};

/// Version of the extractor, for the keys of caches that store its results.
pub const EXTRACTOR_VERSION: u32 = 3;

/// Result of an extraction: the content of the bundle, and its problems.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Extraction {
    /// Content. Complete only if `problems` has no error.
    pub bundle: Bundle,
    /// Errors and warnings, in the order of the source.
    pub problems: Vec<Problem>,
}

impl Extraction {
    /// Returns the problems for which the bundle is refused.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.problems
            .iter()
            .filter(|problem| problem.code.is_error())
    }

    /// Returns the problems for which it is not refused.
    pub fn warnings(&self) -> impl Iterator<Item = &Problem> {
        self.problems
            .iter()
            .filter(|problem| !problem.code.is_error())
    }
}

/// Form in which a bundle declares its agents or tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BundleFormat {
    /// `createLightfast({agents: {...}})`.
    #[serde(rename = "lightfast-v1")]
    LightfastV1,
    /// Exported tools of the AI SDK, without agents.
    #[serde(rename = "ai-sdk")]
    AiSdk,
}

/// Method of an extraction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExtractedBy {
    /// The syntax was read. No code of the bundle ran.
    #[default]
    Syntax,
    /// The bundle was run on request of the user, and reported its declaration. Its tools run all
    /// of it.
    Execution,
}

/// Content of a bundle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bundle {
    /// Form of the declarations; `None` if they were not found.
    pub format: Option<BundleFormat>,
    /// [`EXTRACTOR_VERSION`] of the extraction.
    pub extractor: u32,
    /// Method of the extraction.
    #[serde(default)]
    pub extracted_by: ExtractedBy,
    /// `metadata` of the configuration: name, version, description.
    pub metadata: Option<Json>,
    /// Agents, in the order of the source.
    pub agents: Vec<Agent>,
    /// Exported tools that belong to no agent.
    pub tools: Vec<Tool>,
}

impl Bundle {
    /// Returns a bundle without content.
    pub const fn empty() -> Self {
        Self {
            format: None,
            extractor: EXTRACTOR_VERSION,
            extracted_by: ExtractedBy::Syntax,
            metadata: None,
            agents: Vec::new(),
            tools: Vec::new(),
        }
    }
}

/// Agent that a bundle declares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// Key in `agents`, by which a caller selects the agent.
    pub key: String,
    /// Declared name.
    pub name: String,
    /// System prompt.
    pub system: String,
    /// Model.
    pub model: Model,
    /// Tools, in the order of the source.
    pub tools: Vec<Tool>,
    /// Other options that are plain data, such as `temperature`.
    pub options: Vec<(String, Json)>,
    /// Keys of other options that are code. The code is not run.
    pub ignored: Vec<String>,
    /// Place of the declaration.
    pub place: SourcePlace,
}

/// Model, as a bundle names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// `gateway`, `openai`...; `None` if the model is given as a string.
    pub provider: Option<String>,
    /// Name of the model.
    pub name: String,
}

/// Executor of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolKind {
    /// Code in the bundle.
    Function,
    /// The caller of the agent: the bundle has no code for the tool.
    Client,
    /// The provider of the model.
    Provider,
}

/// Arguments with which the code of a tool is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolSignature {
    /// `(input, runtimeContext)`.
    #[serde(rename = "lightfast")]
    Lightfast,
    /// `(input, {toolCallId, messages, abortSignal})`.
    #[serde(rename = "ai-sdk")]
    AiSdk,
    /// `(input)`: a plain function in place of a declaration.
    #[serde(rename = "function")]
    Function,
}

/// Tool that a bundle declares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Key among the tools, by which models call it.
    pub name: String,
    /// Executor of the tool.
    pub kind: ToolKind,
    /// Arguments of its code.
    pub signature: ToolSignature,
    /// Description for models.
    pub description: Option<String>,
    /// JSON Schema 2020-12 of the input.
    pub input_schema: Json,
    /// True if input fields that the schema does not name are dropped before the code runs. This is
    /// zod's default; `additionalProperties` in the schema takes precedence.
    #[serde(default)]
    pub drops_unknown_fields: bool,
    /// JSON Schema of the output; `None` if the bundle declares none.
    pub output_schema: Option<Json>,
    /// True if the bundle has code of the tool that can be run.
    pub executable: bool,
    /// Other options that are plain data, such as `strict`.
    pub options: Vec<(String, Json)>,
    /// Keys of other options that are code. The code is not run.
    pub ignored: Vec<String>,
    /// Place of the declaration.
    pub place: SourcePlace,
    /// Code of the tool; `None` if it is not executable.
    pub slice: Option<Slice>,
}

/// Code of one tool: its function and the declarations that the function needs, but nothing else of
/// the bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// ECMAScript module whose default export is the function. Text of the bundle in its order,
    /// without TypeScript's types.
    pub code: String,
    /// Modules that the code imports.
    pub modules: Vec<String>,
    /// Global names that the code uses without declaring them, such as `fetch`.
    pub globals: Vec<String>,
    /// Names of declarations that the code changes while it runs. The changes are lost after each
    /// call.
    pub state: Vec<String>,
}

/// Part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcePlace {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
}
