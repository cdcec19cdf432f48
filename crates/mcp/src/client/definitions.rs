//! Definitions of a server's tools, reduced to what a model sees.
//!
//! TRUST: names, descriptions and schemas come from the server. Their number and size are bounded,
//! control characters are escaped, and tools that do not fit are left out and counted.

use super::ServerSpec;
use super::link::quote;
use glovebox_agent::ToolDefinition;
use glovebox_proto::visible;
use glovebox_tools::policy::served_name;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Maximum number of tools of one server.
const MAX_TOOLS: usize = 128;
/// Maximum length of a description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 4096;
/// Maximum size of one schema, in bytes.
const MAX_SCHEMA_BYTES: usize = 16 << 10;
/// Maximum size of all definitions of one server, in bytes.
const MAX_TOTAL_BYTES: usize = 256 << 10;
/// Maximum depth of a schema.
const MAX_DEPTH: usize = 24;

/// Maximum number of broken tools that are named individually.
const MAX_NAMED: usize = 8;

/// Tool as its server lists it.
#[derive(Debug)]
struct ListedTool {
    name: String,
    description: String,
    schema: Map<String, Value>,
    is_read_only: bool,
}

impl ListedTool {
    /// Reads one entry of the server's list.
    ///
    /// # Errors
    /// The field that is malformed.
    fn read(tool: &Value) -> Result<Self, &'static str> {
        let name = tool["name"].as_str().ok_or("name")?;
        let schema = match &tool["inputSchema"] {
            Value::Object(schema) => schema.clone(),
            Value::Null => Map::new(),
            _ => return Err("inputSchema"),
        };
        let description = match &tool["description"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            _ => return Err("description"),
        };
        Ok(Self {
            name: name.to_owned(),
            description,
            schema,
            is_read_only: tool["annotations"]["readOnlyHint"] == true,
        })
    }
}

/// Tool that the model sees.
#[derive(Debug)]
pub(super) struct OfferedTool {
    /// Name of the tool at its server.
    pub(super) name: String,
    pub(super) definition: ToolDefinition,
}

/// Selects the wanted tools that fit, sorted by name. Returns them with notes about those that do
/// not.
pub(super) fn take(spec: &ServerSpec, listed: &[Value]) -> (Vec<OfferedTool>, Vec<String>) {
    let is_wanted = |name: &str| {
        let mut wanted = spec.tools.iter().flatten();
        spec.tools.is_none() || wanted.any(|wanted| wanted == name)
    };
    let (mut tools, mut notes, mut broken) = (Vec::new(), Vec::new(), 0);
    for (index, tool) in listed.iter().enumerate() {
        match ListedTool::read(tool) {
            Ok(tool) if is_wanted(&tool.name) => tools.push(tool),
            Err(field) if tool["name"].as_str().is_none_or(is_wanted) => {
                broken += 1;
                if broken <= MAX_NAMED {
                    notes.push(broken_tool(spec, index, tool, field));
                }
            }
            _ => {}
        }
    }
    if broken > MAX_NAMED {
        notes.push(format!(
            "{} more tools of the MCP server `{}` are left out: their definitions are not understood",
            broken - MAX_NAMED,
            spec.name
        ));
    }
    let mut listed = tools;
    // Sorted, so that the model's prompt does not depend on the order in which the server lists.
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    let missing: Vec<&str> = spec
        .tools
        .iter()
        .flatten()
        .map(String::as_str)
        .filter(|wanted| listed.iter().all(|tool| tool.name != *wanted))
        .collect();
    if !missing.is_empty() {
        notes.push(format!(
            "the MCP server `{}` has no tool {}",
            spec.name,
            missing.join(", ")
        ));
    }
    let (mut offered, mut taken, mut bytes, mut unfit) = (Vec::new(), BTreeSet::new(), 0, 0);
    for tool in listed {
        let fitting = definition(spec, &tool).filter(|definition| {
            bytes += definition.description.len() + definition.schema.to_string().len();
            bytes <= MAX_TOTAL_BYTES && offered.len() < MAX_TOOLS
        });
        match fitting {
            Some(definition) if taken.insert(definition.name.clone()) => {
                offered.push(OfferedTool {
                    name: tool.name,
                    definition,
                });
            }
            _ => unfit += 1,
        }
    }
    if unfit > 0 {
        notes.push(format!(
            "{unfit} of the tools of the MCP server `{}` cannot be used: their names or definitions are too long, \
             malformed or double, or there are too many",
            spec.name
        ));
    }
    (offered, notes)
}

/// Describes a tool with a malformed field.
fn broken_tool(spec: &ServerSpec, index: usize, tool: &Value, field: &str) -> String {
    let name = match tool["name"].as_str() {
        Some(name) => format!("the tool `{}`", quote(name)),
        None => format!("tool number {}", index + 1),
    };
    format!(
        "{name} of the MCP server `{}` is left out: its `{field}` is not understood",
        spec.name
    )
}

fn definition(spec: &ServerSpec, tool: &ListedTool) -> Option<ToolDefinition> {
    // MCP permits dots and slashes in names; model providers do not.
    let name = served_name(&spec.name, &tool.name.replace(['.', '/'], "_"))?;
    let said: String = tool
        .description
        .chars()
        .take(MAX_DESCRIPTION_CHARS)
        .collect();
    let schema = schema(&tool.schema)?;
    Some(ToolDefinition {
        name,
        description: visible::lines(said.trim().as_bytes()),
        schema,
        is_read_only: spec.is_trusted && tool.is_read_only,
        server: Some(spec.label()),
    })
}

fn schema(given: &Map<String, Value>) -> Option<Value> {
    let mut schema = clean(&Value::Object(given.clone()), MAX_DEPTH)?;
    let fields = schema.as_object_mut()?;
    let kind = fields.entry("type").or_insert_with(|| "object".into());
    let is_object = kind == "object";
    (is_object && schema.to_string().len() <= MAX_SCHEMA_BYTES).then_some(schema)
}

/// Returns the value with control characters in all texts escaped. `None` if it is too deep, or if
/// the name of a field has such characters.
fn clean(value: &Value, depth: usize) -> Option<Value> {
    let deeper = depth.checked_sub(1)?;
    Some(match value {
        Value::String(text) => visible::lines(text.as_bytes()).into(),
        Value::Array(items) => items
            .iter()
            .map(|item| clean(item, deeper))
            .collect::<Option<Vec<_>>>()?
            .into(),
        Value::Object(fields) => fields
            .iter()
            // The server would not recognize an argument under an escaped name.
            .map(|(name, value)| {
                let is_plain = visible::line_of_text(name) == *name;
                is_plain.then_some(())?;
                Some((name.clone(), clean(value, deeper)?))
            })
            .collect::<Option<Map<_, _>>>()?
            .into(),
        other => other.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{HttpEndpoint, ServerTransport};
    use super::*;
    use glovebox_agent::ServerPlace;
    use serde_json::json;
    use std::time::Duration;

    fn spec() -> ServerSpec {
        ServerSpec {
            name: "hub".to_owned(),
            place: ServerPlace::Remote,
            way: ServerTransport::Http(HttpEndpoint::new("https://example.com/mcp", &[]).unwrap()),
            tools: None,
            timeout: Duration::from_secs(1),
            output_bytes: 1000,
            is_trusted: false,
            is_required: false,
        }
    }

    fn tool(name: &str, description: &str, schema: Value) -> Value {
        let mut tool = json!({
            "name": name,
            "description": description,
            "annotations": { "readOnlyHint": true },
        });
        tool["inputSchema"] = schema;
        tool
    }

    #[test]
    fn what_is_hostile_is_made_harmless_or_left_out() {
        let mut deep = json!({});
        for _ in 0..100 {
            deep = json!({ "properties": { "x": deep } });
        }
        let listed = vec![
            tool(
                "b.c",
                "says \u{1b}[2J\u{202e}this",
                json!({ "title": "\u{7}x" }),
            ),
            tool("b/c", "the same name", json!({})),
            tool("bad name", "", json!({})),
            tool("esc\u{1b}", "", json!({})),
            tool(&"n".repeat(100), "", json!({})),
            tool("deep", "", deep),
            tool("wide", "", json!({ "description": "x".repeat(20_000) })),
            tool("key", "", json!({ "properties": { "a\u{1b}": {} } })),
            tool("array", "", json!({ "type": "array" })),
            tool("long", &"y".repeat(100_000), json!({ "type": "object" })),
        ];
        let (offered, notes) = take(&spec(), &listed);
        let names: Vec<&str> = offered
            .iter()
            .map(|tool| tool.definition.name.as_str())
            .collect();
        assert_eq!(names, ["hub__b_c", "hub__long"]);
        let first = &offered[0].definition;
        assert_eq!(first.description, "says \\x1b[2J\\u{202e}this");
        assert_eq!(first.schema["title"], "\\x07x");
        assert_eq!(first.schema["type"], "object");
        assert_eq!(offered[0].name, "b.c");
        assert_eq!(
            offered[1].definition.description.len(),
            MAX_DESCRIPTION_CHARS
        );
        assert!(notes[0].starts_with("8 of the tools"), "{notes:?}");
        assert!(!offered.iter().any(|tool| tool.definition.is_read_only));
    }

    #[test]
    fn number_and_size_are_bounded() {
        let many = |count: usize, text: &str| -> Vec<Value> {
            (0..count)
                .map(|index| tool(&format!("t{index:04}"), text, json!({})))
                .collect()
        };
        assert_eq!(take(&spec(), &many(500, "")).0.len(), MAX_TOOLS);
        let (offered, notes) = take(&spec(), &many(100, &"x".repeat(4000)));
        assert!(
            offered.len() > 50 && offered.len() < 70,
            "{}",
            offered.len()
        );
        assert_eq!(notes.len(), 1);
    }

    #[test]
    fn only_what_is_wanted_is_offered_and_its_word_counts_where_it_is_trusted() {
        let spec = ServerSpec {
            tools: Some(vec!["a".to_owned(), "gone".to_owned()]),
            is_trusted: true,
            is_required: false,
            ..spec()
        };
        let listed = vec![tool("b", "", json!({})), tool("a", "", json!({}))];
        let (offered, notes) = take(&spec, &listed);
        assert_eq!(offered.len(), 1);
        assert!(offered[0].definition.is_read_only);
        assert_eq!(notes, ["the MCP server `hub` has no tool gone"]);
    }

    #[test]
    fn broken_tool_is_left_out_alone_and_named() {
        let mut listed = vec![
            tool("good", "", json!({})),
            tool("list", "", json!([])),
            json!({ "name": 5, "inputSchema": {} }),
            json!({ "name": "bare", "annotations": 7, "icons": "x" }),
            json!({ "name": "esc\u{1b}", "description": 1 }),
            json!("tool"),
        ];
        let (offered, notes) = take(&spec(), &listed);
        let names: Vec<&str> = offered.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["bare", "good"]);
        assert_eq!(
            notes,
            [
                "the tool `list` of the MCP server `hub` is left out: its `inputSchema` is not understood",
                "tool number 3 of the MCP server `hub` is left out: its `name` is not understood",
                "the tool `esc\\x1b` of the MCP server `hub` is left out: its `description` is not understood",
                "tool number 6 of the MCP server `hub` is left out: its `name` is not understood",
            ]
        );
        listed.extend((0..20).map(|_| json!({})));
        let (_, notes) = take(&spec(), &listed);
        assert_eq!(notes.len(), MAX_NAMED + 1);
        assert!(notes[MAX_NAMED].starts_with("16 more tools"), "{notes:?}");
        // A malformed tool that is not wanted is not reported.
        let wanted = ServerSpec {
            tools: Some(vec!["good".to_owned()]),
            ..spec()
        };
        assert_eq!(take(&wanted, &listed[..2]).1, Vec::<String>::new());
    }
}
