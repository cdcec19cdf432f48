//! Reads a tool: its description, its schemas and its code.

use crate::evaluate::Evaluator;
use crate::model::{SourcePlace, Tool, ToolKind, ToolSignature};
use crate::problem::ProblemCode;
use crate::provenance::{self, Factory};
use crate::report::Report;
use crate::schema::{Converter, Side};
use crate::slice;
use crate::source::quoted;
use crate::value::*;
use crate::{Json, data};
use oxc_span::Span;
use std::rc::Rc;

/// Fields of a tool that [`Tool`] has fields for.
const TOOL_FIELDS: [&str; 6] = [
    "description",
    "inputSchema",
    "parameters",
    "outputSchema",
    "execute",
    "type",
];

/// Reader of tools.
pub(crate) struct ToolReader<'e, 's, 'a> {
    pub evaluator: &'e Evaluator<'a>,
    pub report: &'e mut Report<'s>,
}

impl<'a> ToolReader<'_, '_, 'a> {
    /// Reads the tool of a key.
    pub(crate) fn tool(&mut self, entry: &Entry<'a>, path: &str) -> Option<Tool> {
        self.tool_value(entry, &entry.value, path, true)
    }

    fn tool_value(
        &mut self,
        entry: &Entry<'a>,
        value: &Value<'a>,
        path: &str,
        may_be_factory: bool,
    ) -> Option<Tool> {
        match value {
            Value::Unknown(refusal) => {
                self.report.add(path, refusal);
                None
            }
            Value::Object(fields) => {
                Some(self.declared(entry, fields, ToolSignature::AiSdk, entry.span, path))
            }
            Value::Made(made) => self.made(entry, made, path),
            Value::Function(closure) => {
                if may_be_factory && let Some(made) = self.factory(closure, entry) {
                    return self.tool_value(entry, &made, path, false);
                }
                Some(self.bare_function(entry, closure, path))
            }
            value => {
                self.report.refuse_value(
                    value,
                    ProblemCode::FieldType,
                    path,
                    entry.span,
                    format!("{} is no tool", value.kind()),
                    "Make it with `createTool({...})` or `tool({...})`.",
                );
                None
            }
        }
    }

    /// Returns the tool that `(context) => tool({...})` returns; `None` if it returns something
    /// else.
    fn factory(&self, closure: &Closure<'a>, entry: &Entry<'a>) -> Option<Value<'a>> {
        let context = Placed {
            value: Refusal::new(
                ProblemCode::DynamicValue,
                closure.node.span(),
                "the runtime context, which is only known when the agent runs",
                "Use the second argument of `execute` instead.",
            )
            .value(),
            span: entry.span,
        };
        match self.evaluator.call(closure, vec![context], entry.span) {
            Value::Made(made) if is_tool(&made) => Some(Value::Made(made)),
            _ => None,
        }
    }

    fn made(&mut self, entry: &Entry<'a>, made: &Rc<Made<'a>>, path: &str) -> Option<Tool> {
        let factory = match &made.callee {
            Callee::Import(path) => provenance::factory(path),
            Callee::Method(..) => None,
        };
        let signature = match factory {
            Some(Factory::LightfastTool) => ToolSignature::Lightfast,
            Some(Factory::AiTool) => ToolSignature::AiSdk,
            _ if is_provider_tool(made) => return Some(self.provider_tool(entry, made)),
            // `createTool({...})(context)` is the tool that `createTool` makes.
            _ => {
                if let Callee::Method(inner, name) = &made.callee
                    && &**name == "()"
                    && is_tool(inner)
                {
                    return self.made(entry, &inner.clone(), path);
                }
                self.report.refuse(
                    ProblemCode::FieldType,
                    path,
                    made.span,
                    format!("`{}` makes no tool", quoted(&made.origin().shown())),
                    "Make it with `createTool({...})` of lightfast or `tool({...})` of ai.",
                );
                return None;
            }
        };
        match made
            .argument(0)
            .map(|argument| (&argument.value, argument.span))
        {
            Some((Value::Object(fields), _)) => {
                Some(self.declared(entry, &fields.clone(), signature, made.span, path))
            }
            Some((Value::Unknown(refusal), _)) => {
                self.report.add(path, refusal);
                None
            }
            _ => {
                self.report.refuse(
                    ProblemCode::FieldType,
                    path,
                    made.span,
                    "the tool is declared without an object",
                    "Write `tool({description, inputSchema, execute})`.",
                );
                None
            }
        }
    }

    fn provider_tool(&mut self, entry: &Entry<'a>, made: &Made<'a>) -> Tool {
        let mut tool = self.empty(entry, made.span, ToolSignature::AiSdk);
        tool.kind = ToolKind::Provider;
        tool.description = Some(made.origin().shown());
        if let Some(argument) = made.argument(0)
            && let Ok(Json::Object(options)) = data::to_json(self.evaluator, argument)
        {
            tool.options = options;
        }
        tool
    }

    fn empty(&self, entry: &Entry<'a>, span: Span, signature: ToolSignature) -> Tool {
        Tool {
            name: entry.key.to_string(),
            kind: ToolKind::Client,
            signature,
            description: None,
            input_schema: any_object(),
            drops_unknown_fields: false,
            output_schema: None,
            executable: false,
            options: Vec::new(),
            ignored: Vec::new(),
            place: self.place(span),
            slice: None,
        }
    }

    fn place(&self, span: Span) -> SourcePlace {
        let (line, column) = self.evaluator.source.position(span.start);
        SourcePlace {
            line,
            column,
            start: span.start,
            end: span.end,
        }
    }

    /// Reads a plain function in place of a tool: it is the code, without description and schema.
    fn bare_function(&mut self, entry: &Entry<'a>, closure: &Rc<Closure<'a>>, path: &str) -> Tool {
        self.report.warn(
            ProblemCode::SchemaLossy,
            path,
            entry.span,
            "the tool is a plain function without description and schema; every object is accepted",
        );
        let mut tool = self.empty(entry, closure.node.span(), ToolSignature::Function);
        self.code(&mut tool, closure, path);
        tool
    }

    fn declared(
        &mut self,
        entry: &Entry<'a>,
        fields: &Object<'a>,
        signature: ToolSignature,
        span: Span,
        path: &str,
    ) -> Tool {
        let mut tool = self.empty(entry, span, signature);
        let before = fields.get("description");
        if let Some(description) = before {
            match &description.value {
                Value::Text(text) => tool.description = Some(text.to_string()),
                Value::Undefined => {}
                Value::Unknown(refusal) => {
                    self.report.add(&format!("{path}.description"), refusal);
                }
                Value::Getter(_) => self.report.add(
                    &format!("{path}.description"),
                    &crate::evaluate::getter(description.key_span),
                ),
                value => self.report.refuse(
                    ProblemCode::FieldType,
                    &format!("{path}.description"),
                    description.span,
                    format!("`description` is {}, not a text", value.kind()),
                    "Write a text.",
                ),
            }
        }
        match fields
            .get("inputSchema")
            .or_else(|| fields.get("parameters"))
        {
            Some(schema) => {
                let path = format!("{path}.{}", schema.key);
                tool.input_schema = self.schema(schema, &path, Side::Input);
                tool.drops_unknown_fields = matches!(&schema.value, Value::Made(made)
                    if provenance::is_zod(&made.origin().package));
            }
            None => self.report.refuse(
                ProblemCode::FieldMissing,
                &format!("{path}.inputSchema"),
                span,
                "the tool has no `inputSchema`",
                "Add `inputSchema: z.object({...})`; for a tool without input `z.object({})`.",
            ),
        }
        if let Some(schema) = fields.get("outputSchema")
            && !matches!(schema.value, Value::Undefined)
        {
            let path = format!("{path}.outputSchema");
            tool.output_schema = Some(self.schema(schema, &path, Side::Output));
        }
        for field in &fields.entries {
            if TOOL_FIELDS.contains(&&*field.key) || matches!(field.value, Value::Undefined) {
                continue;
            }
            let value = Placed {
                value: field.value.clone(),
                span: field.span,
            };
            if let Ok(json) = data::to_json(self.evaluator, &value) {
                tool.options.push((field.key.to_string(), json));
            } else {
                tool.ignored.push(field.key.to_string());
                self.report.warn(
                    ProblemCode::Ignored,
                    &format!("{path}.{}", field.key),
                    field.key_span,
                    format!(
                        "`{}` is code or only known at run time; it is left out",
                        quoted(&field.key)
                    ),
                );
            }
        }
        let execute = fields.get("execute");
        let path = format!("{path}.execute");
        match execute.map(|execute| (&execute.value, execute.span)) {
            None | Some((Value::Undefined, _)) => {
                if signature == ToolSignature::Lightfast {
                    self.report.refuse(
                        ProblemCode::ToolNoExecute,
                        &path,
                        span,
                        "a tool of lightfast has an `execute`",
                        "Add `execute: async (input) => {...}`.",
                    );
                }
            }
            Some((Value::Function(closure), _)) => self.code(&mut tool, &closure.clone(), &path),
            Some((Value::Unknown(refusal), _)) => self.report.add(&path, refusal),
            Some((value, span)) => self.report.refuse_value(
                value,
                ProblemCode::ToolNotFunction,
                &path,
                span,
                format!("`execute` is {}", value.kind()),
                "Write a function of the bundle: `execute: async (input) => {...}`.",
            ),
        }
        tool
    }

    fn schema(&mut self, entry: &Entry<'a>, path: &str, side: Side) -> Json {
        let mut converter = Converter::new(self.evaluator, side);
        let json = converter.convert(&Placed {
            value: entry.value.clone(),
            span: entry.span,
        });
        for note in converter.notes {
            self.report.add(path, &note);
        }
        json
    }

    fn code(&mut self, tool: &mut Tool, closure: &Rc<Closure<'a>>, path: &str) {
        tool.kind = ToolKind::Function;
        match slice::cut(self.evaluator, closure) {
            Ok(slice) => {
                for name in &slice.state {
                    self.report.warn(
                        ProblemCode::Ignored,
                        path,
                        closure.node.span(),
                        format!("`{}` is changed while the tool runs; nothing of it is kept between calls", quoted(name)),
                    );
                }
                tool.executable = true;
                tool.slice = Some(slice);
            }
            Err(refusals) => {
                for refusal in refusals {
                    self.report.add(path, &refusal);
                }
            }
        }
    }
}

/// True if a call makes a tool.
pub(crate) fn is_tool(made: &Made<'_>) -> bool {
    match &made.callee {
        Callee::Import(path) => matches!(
            provenance::factory(path),
            Some(Factory::LightfastTool | Factory::AiTool)
        ),
        Callee::Method(..) => false,
    }
}

/// True for `openai.tools.webSearch()` and similar, which the provider runs itself.
fn is_provider_tool(made: &Made<'_>) -> bool {
    let origin = made.origin();
    provenance::is_model_provider(&origin.package)
        && origin.path.iter().any(|name| &**name == "tools")
}

fn any_object() -> Json {
    let mut json = Json::object();
    json.set("type", "object".into());
    json
}
