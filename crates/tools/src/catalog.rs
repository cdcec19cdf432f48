//! Every tool there is, declared once.

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

/// One tool.
#[derive(Debug)]
pub struct Definition {
    /// The name that is shown to models.
    pub name: &'static str,
    /// Other names under which it is called.
    pub aliases: &'static [&'static str],
    /// What it is for, for models and people; names no other tool.
    pub description: &'static str,
    /// What to use beside it, for those who have that.
    advice: &'static [Advice],
    /// Whether it leaves the sandbox as it is.
    pub is_read_only: bool,
    /// Whether it can destroy what is there.
    pub is_destructive: bool,
    /// Whether a second call with the same arguments changes nothing more.
    pub is_idempotent: bool,
    /// Whether it runs programs, which can do whatever the sandbox lets them.
    pub runs_programs: bool,
    /// Whether a script that RunJS runs may call it.
    pub is_for_scripts: bool,
    schema: fn() -> Value,
    ready: fn(Value) -> Result<Box<dyn ReadyCall>, Fault>,
}

/// A sentence of a tool's description that names another tool.
#[derive(Debug)]
pub(crate) struct Advice {
    /// The tool that it names.
    pub(crate) tool: &'static str,
    /// The sentence.
    pub(crate) sentence: &'static str,
}

impl Definition {
    /// What it is for, with what to use beside it as far as `has` says that this is there. A model takes a tool
    /// that it reads of for one it can call.
    pub fn described(&self, has: impl Fn(&str) -> bool) -> String {
        self.described_as(has, &ToolPrefix::default())
    }

    /// [`Self::described`], with this word before the names of tools.
    pub fn described_as(&self, has: impl Fn(&str) -> bool, prefix: &ToolPrefix) -> String {
        let mut text = self.description.to_owned();
        for advice in self.advice.iter().filter(|advice| has(advice.tool)) {
            text.push(' ');
            text.push_str(&prefix.write_names(advice.sentence, &[advice.tool]));
        }
        text
    }

    /// JSON schema of the arguments (draft 2020-12).
    pub fn schema(&self) -> Value {
        (self.schema)()
    }

    /// Arguments as the tool understands them, under their own names.
    ///
    /// # Errors
    /// `invalid-argument`, naming which one and why.
    pub fn check(&self, args: Value) -> Result<Value, Fault> {
        self.ready(args)?.arguments()
    }

    /// Checks arguments from outside.
    pub(crate) fn ready(&self, args: Value) -> Result<Box<dyn ReadyCall>, Fault> {
        (self.ready)(args)
    }
}

/// What a tool can do to a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    Reads,
    /// Files are written.
    Writes,
    /// Programs run.
    Runs,
}

/// A tool's argument type, and what is done with it.
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

    /// Writes the arguments the one way that rules are about, and refuses what can never work. Done once, before
    /// a rule sees them.
    fn normalize(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault>;
}

/// A call whose arguments fit.
pub(crate) trait ReadyCall {
    /// The arguments under their own names.
    fn arguments(&self) -> Result<Value, Fault>;
    fn lane(&self) -> ScheduleLane;
    fn run(self: Box<Self>, call: &Call<'_>) -> Result<ToolOutcome, Fault>;
}

impl<T: Tool> ReadyCall for T {
    fn arguments(&self) -> Result<Value, Fault> {
        let mut arguments = serde_json::to_value(self)
            .map_err(|error| Fault::failed(Code::Internal, error.to_string()))?;
        if let Value::Object(arguments) = &mut arguments {
            // What was not given is left out.
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

// TRUST: arguments come from a model; this is the only place they are taken apart.
fn parse<T: Tool>(args: Value) -> Result<T, Fault> {
    // A tool without arguments is often called with null.
    let mut args = if args.is_null() { json!({}) } else { args };
    let parsed = T::deserialize(&args).or_else(|error| {
        coerce::coerce(&schema::of::<T>(), &mut args);
        // What was wrong is told of the arguments as they were sent.
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

/// The names of a tool's arguments, those first that it cannot do without.
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

/// Every tool.
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

/// The tool of this name or alias, whatever the case of its letters.
///
/// # Errors
/// `not-found`, naming the tools there are.
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

/// All definitions as JSON, in the shape models are given: name, description, schema.
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
                // An alias may be the name in other letters.
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

    /// Collects the keywords of a schema; names of arguments are none.
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
