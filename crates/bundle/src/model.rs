//! What was read from a bundle: agents, their tools, schemas, and the code that a tool would run.

use crate::Json;
use crate::problem::Problem;
use serde::{Deserialize, Serialize};

/// Version of the extractor, part of the key under which its results may be kept.
pub const EXTRACTOR_VERSION: u32 = 3;

/// Result of an extraction: what was read, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Extraction {
    /// What was read. Complete only if `problems` has no error.
    pub bundle: Bundle,
    /// Errors and warnings in the order of the source.
    pub problems: Vec<Problem>,
}

impl Extraction {
    /// The problems for which the bundle is refused.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.problems
            .iter()
            .filter(|problem| problem.code.is_error())
    }

    /// The problems that are only worth knowing.
    pub fn warnings(&self) -> impl Iterator<Item = &Problem> {
        self.problems
            .iter()
            .filter(|problem| !problem.code.is_error())
    }
}

/// In which form a bundle declares its agents or tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BundleFormat {
    /// `createLightfast({agents: {...}})`.
    #[serde(rename = "lightfast-v1")]
    LightfastV1,
    /// Exported tools of the AI SDK, without agents.
    #[serde(rename = "ai-sdk")]
    AiSdk,
}

/// How it was found out what a bundle declares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExtractedBy {
    /// Read from its syntax; nothing of it ran.
    #[default]
    Syntax,
    /// It was run and asked, because somebody said so. Its tools run all of it.
    Execution,
}

/// The content of a bundle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bundle {
    /// The form of its declarations; none when they were not found.
    pub format: Option<BundleFormat>,
    /// Version of the extractor.
    pub extractor: u32,
    /// How it was found out.
    #[serde(default)]
    pub extracted_by: ExtractedBy,
    /// `metadata` of the configuration: name, version, description.
    pub metadata: Option<Json>,
    /// Its agents, in the order of the source.
    pub agents: Vec<Agent>,
    /// Exported tools that belong to no agent.
    pub tools: Vec<Tool>,
}

impl Bundle {
    /// One of which nothing was read.
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

/// An agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// Its key in `agents`, by which it is asked for.
    pub key: String,
    /// Its own name.
    pub name: String,
    /// The system prompt.
    pub system: String,
    /// The model.
    pub model: Model,
    /// Its tools, in the order of the source.
    pub tools: Vec<Tool>,
    /// Further options that are plain data, such as `temperature`.
    pub options: Vec<(String, Json)>,
    /// Further options that are code, which is not run.
    pub ignored: Vec<String>,
    /// Where it is declared.
    pub place: SourcePlace,
}

/// A model, as a bundle names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// `gateway`, `openai`...; none when the model is given as text.
    pub provider: Option<String>,
    /// Its name.
    pub name: String,
}

/// Who runs a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolKind {
    /// Its code in the bundle.
    Function,
    /// Whoever called the agent: the bundle has no code for it.
    Client,
    /// The provider of the model.
    Provider,
}

/// With which arguments the code of a tool is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolSignature {
    /// `(input, runtimeContext)`.
    #[serde(rename = "lightfast")]
    Lightfast,
    /// `(input, {toolCallId, messages, abortSignal})`.
    #[serde(rename = "ai-sdk")]
    AiSdk,
    /// `(input)`: a function without a declaration.
    #[serde(rename = "function")]
    Function,
}

/// A tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Its key among the tools, by which models call it.
    pub name: String,
    /// Who runs it.
    pub kind: ToolKind,
    /// How its code is called.
    pub signature: ToolSignature,
    /// What models are told about it.
    pub description: Option<String>,
    /// JSON Schema 2020-12 of its input.
    pub input_schema: Json,
    /// Whether fields that objects of its input do not name are dropped before its code sees them: so zod does, unless
    /// `additionalProperties` says something else.
    #[serde(default)]
    pub drops_unknown_fields: bool,
    /// JSON Schema of its output, where the bundle declares one.
    pub output_schema: Option<Json>,
    /// Whether there is code that can be run.
    pub executable: bool,
    /// Further options that are plain data, such as `strict`.
    pub options: Vec<(String, Json)>,
    /// Further options that are code, which is not run.
    pub ignored: Vec<String>,
    /// Where it is declared.
    pub place: SourcePlace,
    /// The code that runs when it is called.
    pub slice: Option<Slice>,
}

/// The code of one tool: its function and all declarations that the function needs, nothing else of the bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// An ECMAScript module whose default export is the function. The text of the bundle, in its order,
    /// without the types of TypeScript.
    pub code: String,
    /// Modules that it imports.
    pub modules: Vec<String>,
    /// Names that it expects to find without declaring them, such as `fetch`.
    pub globals: Vec<String>,
    /// Declarations that it changes while it runs. Nothing of that is kept between calls.
    pub state: Vec<String>,
}

/// A part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcePlace {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// First byte.
    pub start: u32,
    /// Byte after the last one.
    pub end: u32,
}
