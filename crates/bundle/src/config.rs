//! Reads agents and their tools from the evaluated configuration.

use crate::evaluate::Evaluator;
use crate::limits::MAX_NAME_CHARS;
use crate::model::{Agent, Bundle, BundleFormat, Model, SourcePlace};
use crate::problem::ProblemCode;
use crate::provenance::{self, Factory};
use crate::report::Report;
use crate::source::{Source, quoted};
use crate::tool::ToolReader;
use crate::value::*;
use crate::{Json, data};
use oxc_span::Span;
use std::rc::Rc;

/// Fields of an agent that [`Agent`] has fields for.
const AGENT_FIELDS: [&str; 4] = ["name", "system", "model", "tools"];

/// Reader that turns a configuration into a bundle.
pub(crate) struct ConfigReader<'e, 's, 'a> {
    pub evaluator: &'e Evaluator<'a>,
    pub report: &'e mut Report<'s>,
}

impl<'s, 'a> ConfigReader<'_, 's, 'a> {
    /// Reads the argument of `createLightfast` into `bundle`.
    pub(crate) fn config(&mut self, made: &Made<'a>, bundle: &mut Bundle) {
        bundle.format = Some(BundleFormat::LightfastV1);
        let Some(config) = self.object(made.argument(0), "", made.span, "createLightfast") else {
            return;
        };
        if let Some(metadata) = config.get("metadata") {
            match data::to_json(self.evaluator, &placed(metadata)) {
                Ok(json) => bundle.metadata = Some(json),
                Err(refusal) => self.ignore("metadata", &refusal),
            }
        }
        for entry in &config.entries {
            if !matches!(&*entry.key, "agents" | "metadata" | "dev") {
                self.report.warn(
                    ProblemCode::Ignored,
                    &entry.key,
                    entry.key_span,
                    format!("`{}` has no effect here", quoted(&entry.key)),
                );
            }
        }
        let Some(agents) = config.get("agents") else {
            self.report.refuse(
                ProblemCode::NoAgents,
                "agents",
                made.span,
                "the configuration has no `agents`",
                "Write `createLightfast({agents: {name: createAgent({...})}})`.",
            );
            return;
        };
        let Some(agents) = self.object(Some(&placed(agents)), "agents", agents.span, "agents")
        else {
            return;
        };
        if agents.entries.is_empty() {
            self.report.refuse(
                ProblemCode::NoAgents,
                "agents",
                made.span,
                "`agents` is empty",
                "Declare at least one agent with `createAgent({...})`.",
            );
        }
        for entry in &agents.entries {
            let path = format!("agents.{}", entry.key);
            if !self.check_name(entry, &path) {
                continue;
            }
            if let Some(agent) = self.agent(entry, &path) {
                bundle.agents.push(agent);
            }
        }
    }

    /// Reads exported tools of a bundle without agents into `bundle`.
    pub(crate) fn tools(&mut self, tools: &Object<'a>, bundle: &mut Bundle) {
        bundle.format = Some(BundleFormat::AiSdk);
        for entry in &tools.entries {
            let path = format!("tools.{}", entry.key);
            if self.check_name(entry, &path)
                && let Some(tool) = self.tool_reader().tool(entry, &path)
            {
                bundle.tools.push(tool);
            }
        }
    }

    fn tool_reader(&mut self) -> ToolReader<'_, 's, 'a> {
        ToolReader {
            evaluator: self.evaluator,
            report: self.report,
        }
    }

    fn ignore(&mut self, path: &str, refusal: &Refusal) {
        self.report.warn(
            ProblemCode::Ignored,
            path,
            refusal.span,
            format!("left out: {}", refusal.reason),
        );
    }

    fn object(
        &mut self,
        value: Option<&Placed<'a>>,
        path: &str,
        span: Span,
        what: &str,
    ) -> Option<Rc<Object<'a>>> {
        match value.map(|placed| (&placed.value, placed.span)) {
            Some((Value::Object(object), _)) => Some(object.clone()),
            Some((Value::Unknown(refusal), _)) => {
                self.report.add(path, refusal);
                None
            }
            Some((value, span)) => {
                self.report.refuse_value(
                    value,
                    ProblemCode::FieldType,
                    path,
                    span,
                    format!("`{what}` is given {}, not an object", value.kind()),
                    "Write an object.",
                );
                None
            }
            None => {
                self.report.refuse(
                    ProblemCode::FieldMissing,
                    path,
                    span,
                    format!("`{what}` is given nothing"),
                    "Give it an object.",
                );
                None
            }
        }
    }

    /// True if an agent or a tool may have this key. Reports a problem if not.
    fn check_name(&mut self, entry: &Entry<'a>, path: &str) -> bool {
        check_name(self.report, &entry.key, entry.key_span, path, entry.earlier)
    }

    fn agent(&mut self, entry: &Entry<'a>, path: &str) -> Option<Agent> {
        let made = match &entry.value {
            Value::Made(made) => made,
            Value::Unknown(refusal) => {
                self.report.add(path, refusal);
                return None;
            }
            value => {
                let reason = format!("{} is no agent", value.kind());
                let hint = "Make it with `createAgent({...})`.";
                self.report.refuse_value(
                    value,
                    ProblemCode::FieldType,
                    path,
                    entry.span,
                    reason,
                    hint,
                );
                return None;
            }
        };
        let is_agent = matches!(&made.callee, Callee::Import(path)
            if provenance::factory(path) == Some(Factory::Agent));
        if !is_agent {
            self.report.refuse(
                ProblemCode::FieldType,
                path,
                made.span,
                format!("`{}` makes no agent", quoted(&made.origin().shown())),
                "Make it with `createAgent({...})` of lightfast.",
            );
            return None;
        }
        let fields = self.object(made.argument(0), path, made.span, "createAgent")?;
        let span = made.span;
        let name = self.text(&fields, "name", path, span);
        let system = self.text(&fields, "system", path, span);
        let model = self.model(&fields, path, span);
        let mut tools = Vec::new();
        if let Some(declared) = fields.get("tools") {
            let path = format!("{path}.tools");
            if let Some(declared) = self.tool_record(declared, &path) {
                for tool in &declared.entries {
                    let path = format!("{path}.{}", tool.key);
                    if self.check_name(tool, &path)
                        && let Some(tool) = self.tool_reader().tool(tool, &path)
                    {
                        tools.push(tool);
                    }
                }
            }
        }
        if let Some(name) = &name {
            let path = format!("{path}.name");
            let at = fields.get("name").map_or(span, |entry| entry.span);
            check_name(self.report, name, at, &path, None);
        }
        let (options, ignored) = self.options(&fields, path);
        Some(Agent {
            key: entry.key.to_string(),
            name: name?,
            system: system?,
            model: model?,
            tools,
            options,
            ignored,
            place: place(self.evaluator.source, span),
        })
    }

    /// Reads the options without a field of their own. Returns those that are data, with their
    /// values, and the keys of those that are code.
    fn options(&mut self, fields: &Object<'a>, path: &str) -> (Vec<(String, Json)>, Vec<String>) {
        let mut options = Vec::new();
        let mut ignored = Vec::new();
        for entry in &fields.entries {
            if AGENT_FIELDS.contains(&&*entry.key) {
                continue;
            }
            if let Ok(json) = data::to_json(self.evaluator, &placed(entry)) {
                options.push((entry.key.to_string(), json));
                self.report.warn(
                    ProblemCode::Ignored,
                    &format!("{path}.{}", entry.key),
                    entry.key_span,
                    format!(
                        "`{}` has no effect here: whoever runs the agent decides how its model is asked",
                        quoted(&entry.key)
                    ),
                );
            } else {
                ignored.push(entry.key.to_string());
                self.report.warn(
                    ProblemCode::Ignored,
                    &format!("{path}.{}", entry.key),
                    entry.key_span,
                    format!(
                        "`{}` is code or only known at run time; it is left out",
                        quoted(&entry.key)
                    ),
                );
            }
        }
        (options, ignored)
    }

    fn text(&mut self, fields: &Object<'a>, key: &str, path: &str, span: Span) -> Option<String> {
        let path = format!("{path}.{key}");
        let Some(entry) = fields.get(key) else {
            self.report.refuse(
                ProblemCode::FieldMissing,
                &path,
                span,
                format!("the agent has no `{key}`"),
                &format!("Add `{key}: \"...\"`."),
            );
            return None;
        };
        match &entry.value {
            Value::Text(text) => Some(text.to_string()),
            Value::Unknown(refusal) => {
                self.add_used(&path, refusal, entry.span);
                None
            }
            Value::Getter(_) => {
                self.report
                    .add(&path, &crate::evaluate::getter(entry.key_span));
                None
            }
            value => {
                self.report.refuse_value(
                    value,
                    ProblemCode::FieldType,
                    &path,
                    entry.span,
                    format!("`{key}` is {}, not a text", value.kind()),
                    "Write a text.",
                );
                None
            }
        }
    }

    /// Reports a refusal, and the place where the value is used if that lies outside.
    fn add_used(&mut self, path: &str, refusal: &Refusal, used: Span) {
        let is_inside = used.start <= refusal.span.start && refusal.span.end <= used.end;
        if is_inside {
            self.report.add(path, refusal);
        } else {
            self.report
                .add(path, &refusal.clone().also(used, "used here"));
        }
    }

    fn model(&mut self, fields: &Object<'a>, path: &str, span: Span) -> Option<Model> {
        let path = format!("{path}.model");
        let Some(entry) = fields.get("model") else {
            self.report.refuse(
                ProblemCode::FieldMissing,
                &path,
                span,
                "the agent has no `model`",
                "Add `model: gateway(\"...\")`.",
            );
            return None;
        };
        match model(&entry.value) {
            Ok(model) => Some(model),
            Err(Some(refusal)) => {
                self.add_used(&path, &refusal, entry.span);
                None
            }
            Err(None) => {
                self.report.refuse_value(
                    &entry.value,
                    ProblemCode::FieldType,
                    &path,
                    entry.span,
                    format!("`model` is {}, not the name of a model", entry.value.kind()),
                    "Write `gateway(\"...\")`, `openai(\"...\")` or the name as a text.",
                );
                None
            }
        }
    }

    /// Reads a record of tools: `{...}` or `(context) => ({...})`.
    fn tool_record(&mut self, entry: &Entry<'a>, path: &str) -> Option<Rc<Object<'a>>> {
        let value = match &entry.value {
            Value::Function(closure) => {
                let context = Placed {
                    value: Refusal::new(
                        ProblemCode::DynamicValue,
                        entry.span,
                        "the runtime context, which is only known when the agent runs",
                        "Use the second argument of `execute` instead.",
                    )
                    .value(),
                    span: entry.span,
                };
                self.evaluator.call(closure, vec![context], entry.span)
            }
            value => value.clone(),
        };
        let placed = Placed {
            value,
            span: entry.span,
        };
        self.object(Some(&placed), path, entry.span, "tools")
    }
}

/// Returns the model that a value names.
///
/// # Errors
/// The refusal if the value is unknown; `None` if the value names no model.
fn model(value: &Value<'_>) -> Result<Model, Option<Refusal>> {
    match value {
        Value::Text(name) if !name.is_empty() => Ok(Model {
            provider: None,
            name: name.to_string(),
        }),
        Value::Unknown(refusal) => Err(Some((**refusal).clone())),
        Value::Made(made) => {
            let origin = made.origin();
            if let Callee::Import(path) = &made.callee
                && provenance::factory(path) == Some(Factory::WrappedModel)
            {
                return match made.argument(0).map(|argument| &argument.value) {
                    Some(Value::Object(fields)) => match fields.get("model") {
                        Some(entry) => model(&entry.value),
                        None => Err(None),
                    },
                    Some(Value::Unknown(refusal)) => Err(Some((**refusal).clone())),
                    _ => Err(None),
                };
            }
            let is_provider = provenance::is_model_provider(&origin.package)
                || provenance::is_lightfast(&origin.package)
                || (&*origin.package == "ai"
                    && origin.path.first().is_some_and(|name| &**name == "gateway"));
            if !is_provider {
                return Err(None);
            }
            match made.argument(0).map(|argument| &argument.value) {
                Some(Value::Text(name)) => Ok(Model {
                    provider: Some(provider(origin)),
                    name: name.to_string(),
                }),
                Some(Value::Unknown(refusal)) => Err(Some((**refusal).clone())),
                _ => Err(None),
            }
        }
        _ => Err(None),
    }
}

/// Returns the name of the provider: `openai` for `@ai-sdk/openai`, `gateway` for the gateway of
/// any package.
fn provider(origin: &ImportPath) -> String {
    if origin.path.first().is_some_and(|name| &**name == "gateway") {
        return "gateway".to_owned();
    }
    let package = &*origin.package;
    package.rsplit('/').next().unwrap_or(package).to_owned()
}

/// True if an agent or a tool may have this name. Reports a problem if not, and a warning if the
/// name was declared before at `earlier`.
pub(crate) fn check_name(
    report: &mut Report<'_>,
    name: &str,
    span: Span,
    path: &str,
    earlier: Option<Span>,
) -> bool {
    if let Some(earlier) = earlier {
        let refusal = Refusal::new(
            ProblemCode::Ignored,
            earlier,
            format!("`{}` is declared twice; the last one counts", quoted(name)),
            "",
        );
        report.add(path, &refusal.also(span, "the last one"));
    }
    if matches!(name, "__proto__" | "constructor" | "prototype") {
        let reason = format!("`{name}` means something to every JavaScript object");
        report.refuse(
            ProblemCode::ReservedKey,
            path,
            span,
            reason,
            "Choose another name.",
        );
        return false;
    }
    let reason = if name.trim().is_empty() {
        "the name is empty".to_owned()
    } else if name.chars().count() > MAX_NAME_CHARS {
        format!("the name has more than {MAX_NAME_CHARS} characters")
    } else if name.chars().any(|c| crate::source::shown(c) != c) {
        "the name has a line end or another character that cannot be seen".to_owned()
    } else {
        return true;
    };
    let hint = "Choose a short name of letters, digits, `-` and `_`.";
    report.refuse(ProblemCode::NameInvalid, path, span, reason, hint);
    false
}

pub(crate) fn placed<'a>(entry: &Entry<'a>) -> Placed<'a> {
    Placed {
        value: entry.value.clone(),
        span: entry.span,
    }
}

pub(crate) fn place(source: &Source<'_>, span: Span) -> SourcePlace {
    let (line, column) = source.position(span.start);
    SourcePlace {
        line,
        column,
        start: span.start,
        end: span.end,
    }
}
