//! Catalog of all tools. Each tool is declared once.

mod coerce;
mod schema;

use crate::ToolOutcome;
use crate::call::Call;
use crate::prefix::ToolPrefix;
use crate::schedule::ScheduleLane;
use crate::tools::sandboxes::{exec, kill, list as children, spawn};
use crate::tools::{
    bash, code, delete, edit, glob, grep, job, list, move_file, read, run_js, write,
};
use glovebox_proto::{Code, Fault};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Definition of one tool.
#[derive(Debug)]
pub struct Definition {
    /// Name that models see.
    pub name: &'static str,
    /// Further names under which the tool can be called.
    pub aliases: &'static [&'static str],
    /// Purpose of the tool, for models and people. Names no other tool.
    pub description: &'static str,
    /// Sentences about other tools, for sessions that have those tools.
    advice: &'static [Advice],
    /// True if the tool leaves the sandbox unchanged.
    pub is_read_only: bool,
    /// True if the tool can destroy existing data.
    pub is_destructive: bool,
    /// True if a repeated call with the same arguments has no further effect.
    pub is_idempotent: bool,
    /// True if the tool runs programs, which can do everything that the sandbox permits.
    pub runs_programs: bool,
    /// True if scripts of RunJS may call the tool.
    pub is_for_scripts: bool,
    schema: fn() -> Value,
    ready: fn(Value) -> Result<Box<dyn ReadyCall>, Fault>,
}

/// Sentence of a tool's description that names another tool.
#[derive(Debug)]
pub(crate) struct Advice {
    /// Name of the other tool.
    pub(crate) tool: &'static str,
    pub(crate) sentence: &'static str,
}

impl Definition {
    /// Returns the description, with the advice about each tool for which `has` returns true. A
    /// tool that the session lacks must not be named: a model would call it.
    pub fn described(&self, has: impl Fn(&str) -> bool) -> String {
        self.described_as(has, &ToolPrefix::default())
    }

    /// Same as [`Self::described`], with `prefix` before the names of tools.
    pub fn described_as(&self, has: impl Fn(&str) -> bool, prefix: &ToolPrefix) -> String {
        let mut text = self.description.to_owned();
        for advice in self.advice.iter().filter(|advice| has(advice.tool)) {
            text.push(' ');
            text.push_str(&prefix.write_names(advice.sentence, &[advice.tool]));
        }
        text
    }

    /// Returns the JSON schema of the arguments (draft 2020-12).
    pub fn schema(&self) -> Value {
        (self.schema)()
    }

    /// Checks arguments, and returns them normalized and under their canonical names.
    ///
    /// # Errors
    /// `invalid-argument`, with the argument and the reason.
    pub fn check(&self, args: Value) -> Result<Value, Fault> {
        self.ready(args)?.arguments()
    }

    /// Parses and checks the arguments of a caller.
    pub(crate) fn ready(&self, args: Value) -> Result<Box<dyn ReadyCall>, Fault> {
        (self.ready)(args)
    }
}

/// Effect of a tool on a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Changes nothing.
    Reads,
    /// Writes files.
    Writes,
    /// Runs programs.
    Runs,
}

/// Argument type of a tool, and the implementation of the tool.
pub(crate) trait Tool: DeserializeOwned + Serialize + JsonSchema + 'static {
    const NAME: &'static str;
    const ALIASES: &'static [&'static str];
    const DESCRIPTION: &'static str;
    /// Sentences that name other tools.
    const ADVICE: &'static [Advice] = &[];
    const EFFECT: Effect;
    const IS_IDEMPOTENT: bool = matches!(Self::EFFECT, Effect::Reads);
    const IS_FOR_SCRIPTS: bool = true;

    fn lane(&self) -> ScheduleLane {
        match Self::EFFECT {
            Effect::Reads => ScheduleLane::Read,
            Effect::Writes | Effect::Runs => ScheduleLane::Change,
        }
    }

    /// Rewrites the arguments into the form that rules match, and refuses calls that cannot
    /// succeed. Called once, before the permit sees the arguments.
    fn normalize(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault>;
}

/// Call with checked arguments.
pub(crate) trait ReadyCall {
    /// Returns the arguments under their canonical names, without those that are absent.
    fn arguments(&self) -> Result<Value, Fault>;
    fn lane(&self) -> ScheduleLane;
    fn run(self: Box<Self>, call: &Call<'_>) -> Result<ToolOutcome, Fault>;
}

impl<T: Tool> ReadyCall for T {
    fn arguments(&self) -> Result<Value, Fault> {
        let mut arguments = serde_json::to_value(self)
            .map_err(|error| Fault::failed(Code::Internal, error.to_string()))?;
        if let Value::Object(arguments) = &mut arguments {
            // An absent optional argument serializes as null; rules and logs must not see it.
            arguments.retain(|_, value| !value.is_null());
        }
        Ok(arguments)
    }

    fn lane(&self) -> ScheduleLane {
        Tool::lane(self)
    }

    fn run(self: Box<Self>, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        Tool::run(*self, call)
    }
}

const fn define<T: Tool>() -> Definition {
    Definition {
        name: T::NAME,
        aliases: T::ALIASES,
        description: T::DESCRIPTION,
        advice: T::ADVICE,
        is_read_only: matches!(T::EFFECT, Effect::Reads),
        is_destructive: !matches!(T::EFFECT, Effect::Reads),
        is_idempotent: T::IS_IDEMPOTENT,
        runs_programs: matches!(T::EFFECT, Effect::Runs),
        is_for_scripts: T::IS_FOR_SCRIPTS,
        schema: schema::of::<T>,
        ready: |args| parse::<T>(args).map(|ready| Box::new(ready) as Box<dyn ReadyCall>),
    }
}

// TRUST: arguments come from a model. They are parsed here and nowhere else.
fn parse<T: Tool>(args: Value) -> Result<T, Fault> {
    // Models often call a tool without arguments with null.
    let mut args = if args.is_null() { json!({}) } else { args };
    let parsed = T::deserialize(&args).or_else(|error| {
        coerce::coerce(&schema::of::<T>(), &mut args);
        // The first error: it describes the arguments as the model sent them, not as they were
        // coerced.
        T::deserialize(&args).map_err(|_| error)
    });
    let mut parsed = parsed.map_err(|error| {
        Fault::failed(
            Code::InvalidArgument,
            format!("the arguments of {} do not fit: {error}", T::NAME),
        )
        .remedy(format!("its arguments are {}", argument_names::<T>()))
    })?;
    parsed.normalize()?;
    Ok(parsed)
}

/// Lists the names of a tool's arguments for a hint, required ones first.
fn argument_names<T: Tool>() -> String {
    let schema = schema::of::<T>();
    let required = schema["required"].as_array();
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
    let mut names: Vec<&str> = schema["properties"]
        .as_object()
        .into_iter()
        .flat_map(|properties| properties.keys())
        .map(String::as_str)
        .collect();
    names.sort_by_key(|name| (!is_required(name), *name));
    let names: Vec<String> = names
        .into_iter()
        .map(|name| {
            if is_required(name) {
                format!("`{name}` (needed)")
            } else {
                format!("`{name}`")
            }
        })
        .collect();
    names.join(", ")
}

/// All tools.
pub static CATALOG: [Definition; 16] = [
    define::<bash::Bash>(),
    define::<job::Job>(),
    define::<read::Read>(),
    define::<write::Write>(),
    define::<edit::Edit>(),
    define::<delete::Delete>(),
    define::<move_file::Move>(),
    define::<list::List>(),
    define::<glob::Glob>(),
    define::<grep::Grep>(),
    define::<code::Code>(),
    define::<run_js::RunJs>(),
    define::<spawn::Spawn>(),
    define::<children::Sandboxes>(),
    define::<exec::SandboxExec>(),
    define::<kill::SandboxKill>(),
];

/// Returns the tool of this name or alias. Upper and lower case are the same.
///
/// # Errors
/// `not-found`, with the names of all tools.
pub fn find(name: &str) -> Result<&'static Definition, Fault> {
    CATALOG
        .iter()
        .find(|tool| {
            tool.name.eq_ignore_ascii_case(name)
                || tool
                    .aliases
                    .iter()
                    .any(|alias| alias.eq_ignore_ascii_case(name))
        })
        .ok_or_else(|| {
            let names: Vec<_> = CATALOG.iter().map(|tool| tool.name).collect();
            Fault::failed(Code::NotFound, format!("there is no tool `{name}`"))
                .remedy(format!("the tools are {}", names.join(", ")))
        })
}

/// Returns all definitions as JSON, in the form that is given to models: name, description, schema.
pub fn definitions() -> Value {
    CATALOG
        .iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "description": tool.described(|_| true),
                "read_only": tool.is_read_only,
                "input_schema": tool.schema(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_and_aliases_are_unique() {
        let mut seen = BTreeSet::new();
        for tool in &CATALOG {
            for name in std::iter::once(&tool.name).chain(tool.aliases) {
                // An alias may be the name in other case.
                let is_own = name.eq_ignore_ascii_case(tool.name) && *name != tool.name;
                assert!(is_own || seen.insert(name.to_lowercase()), "{name}");
            }
        }
        assert_eq!(find("file_read").unwrap().name, "Read");
        assert_eq!(find("ripgrep").unwrap().name, "Grep");
        assert!(
            find("nonsense")
                .unwrap_err()
                .remedy
                .unwrap()
                .to_string()
                .contains("Bash")
        );
    }

    #[test]
    fn a_tool_names_another_only_to_those_who_have_it() {
        let names: Vec<&str> = CATALOG.iter().map(|tool| tool.name).collect();
        let words = |text: &str| -> Vec<String> {
            text.split(|char: char| !char.is_alphanumeric())
                .map(str::to_owned)
                .collect()
        };
        for tool in &CATALOG {
            let text = format!("{} {}", tool.described(|_| false), tool.schema());
            let named: Vec<_> = words(&text)
                .into_iter()
                .filter(|word| *word != tool.name && names.contains(&word.as_str()))
                .collect();
            assert!(named.is_empty(), "{} names {named:?}", tool.name);
            for advice in tool.advice {
                assert!(names.contains(&advice.tool), "{}", advice.tool);
                let named = words(advice.sentence);
                assert!(
                    named
                        .iter()
                        .all(|word| word == advice.tool || !names.contains(&word.as_str())),
                    "{}",
                    advice.sentence
                );
                assert!(
                    tool.described(|name| name == advice.tool)
                        .ends_with(advice.sentence),
                    "{}",
                    tool.name
                );
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_answered_with_the_arguments_there_are() {
        let fault = find("Write")
            .unwrap()
            .check(json!({ "file": 1 }))
            .unwrap_err();
        assert_eq!(
            fault.remedy.unwrap().to_string(),
            "its arguments are `content` (needed), `path` (needed), `overwrite`"
        );
    }

    #[test]
    fn definitions_are_those_that_were_agreed_on() {
        let kept: Value = serde_json::from_str(include_str!("catalog/definitions.json")).unwrap();
        let found = definitions();
        assert_eq!(
            found,
            kept,
            "a change that is meant goes into catalog/definitions.json:\n{}",
            serde_json::to_string_pretty(&found).unwrap()
        );
    }

    #[test]
    fn every_argument_is_described() {
        for tool in &CATALOG {
            let schema = tool.schema();
            let properties = schema["properties"].as_object().unwrap();
            assert!(!properties.is_empty(), "{}", tool.name);
            for (name, property) in properties {
                assert!(
                    property["description"]
                        .as_str()
                        .is_some_and(|text| !text.is_empty()),
                    "{}.{name}",
                    tool.name
                );
            }
            assert_eq!(schema["additionalProperties"], false, "{}", tool.name);
        }
    }

    /// Collects the keywords of a schema, without the names of arguments.
    fn keywords(schema: &Value, found: &mut BTreeSet<String>) {
        for (key, value) in schema.as_object().into_iter().flatten() {
            found.insert(key.clone());
            match key.as_str() {
                "properties" => {
                    for property in value.as_object().unwrap().values() {
                        keywords(property, found);
                    }
                }
                "items" => keywords(value, found),
                "type" => assert!(value.is_string(), "{schema}"),
                _ => {}
            }
        }
    }

    #[test]
    fn schemas_have_only_keywords_that_every_provider_knows() {
        let mut found = BTreeSet::new();
        for tool in &CATALOG {
            keywords(&tool.schema(), &mut found);
        }
        let common = [
            "additionalProperties",
            "default",
            "description",
            "enum",
            "items",
            "maximum",
            "minimum",
            "properties",
            "required",
            "type",
        ];
        let common: BTreeSet<_> = common.map(str::to_owned).into();
        assert!(found.is_subset(&common), "{found:?}");
    }

    #[test]
    fn rules_see_where_an_absolute_pattern_leads() {
        let checked = |tool: &str, args| find(tool).unwrap().check(args).unwrap();
        let glob = checked("Glob", json!({ "pattern": "/etc/ssl/*.pem" }));
        assert_eq!(glob["path"], "/etc/ssl");
        let grep = checked(
            "Grep",
            json!({ "pattern": "x", "glob": "../*.env", "path": "src" }),
        );
        assert_eq!(grep["path"], "src/..");
    }

    #[test]
    fn what_models_send_for_left_out_arguments_and_numbers_fits() {
        let read = find("Read").unwrap();
        let sent = json!({ "path": "a", "limit": "2", "offset": null });
        let meant = json!({ "path": "a", "limit": 2 });
        assert_eq!(read.check(sent).unwrap(), read.check(meant).unwrap());
        for wrong in [
            json!({ "path": null }),
            json!({ "path": "a", "limit": "two" }),
        ] {
            assert_eq!(read.check(wrong).unwrap_err().code, Code::InvalidArgument);
        }
    }
}
