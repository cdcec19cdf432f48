//! Packages that names come from, and the roles of their functions. A function is recognized by the
//! package it is imported from; by its name alone only where a bundle declares it itself or leaves
//! it undeclared.

use crate::problem::ProblemCode;
use crate::source::quoted;
use crate::value::{ImportPath, Refusal, Value};
use oxc_span::Span;

/// Role of a package's function that the extraction interprets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factory {
    /// `createLightfast({...})`, `new Lightfast({...})`.
    Config,
    /// `createAgent({...})`.
    Agent,
    /// `createTool({...})`.
    LightfastTool,
    /// `tool({...})`, `dynamicTool({...})`.
    AiTool,
    /// `jsonSchema({...})`.
    JsonSchema,
    /// `wrapLanguageModel({model})`.
    WrappedModel,
}

/// Names that stand for functions of packages if a bundle declares them itself or leaves them
/// undeclared.
const FACTORY_NAMES: [(&str, &str); 9] = [
    ("createLightfast", "lightfast"),
    ("Lightfast", "lightfast"),
    ("createAgent", "lightfast"),
    ("createTool", "lightfast"),
    ("gateway", "@ai-sdk/gateway"),
    ("tool", "ai"),
    ("dynamicTool", "ai"),
    ("jsonSchema", "ai"),
    ("wrapLanguageModel", "ai"),
];

/// Packages whose template tag removes indentation.
const DEDENT: [&str; 3] = ["dedent", "ts-dedent", "outdent"];

/// Returns the role of a package's function; `None` if it has none.
pub(crate) fn factory(path: &ImportPath) -> Option<Factory> {
    let name = &**path.path.last()?;
    if path.path.len() > 1 {
        return None;
    }
    Some(match (&*path.package, name) {
        (package, name) if is_lightfast(package) => match name {
            "createLightfast" | "Lightfast" => Factory::Config,
            "createAgent" => Factory::Agent,
            "createTool" => Factory::LightfastTool,
            _ => return None,
        },
        ("ai" | "@ai-sdk/provider-utils", "tool" | "dynamicTool") => Factory::AiTool,
        ("ai" | "@ai-sdk/provider-utils" | "@ai-sdk/ui-utils", "jsonSchema") => Factory::JsonSchema,
        ("ai", "wrapLanguageModel") => Factory::WrappedModel,
        _ => return None,
    })
}

/// Returns the package's function that a local function of this name stands for.
pub(crate) fn by_name(name: &str) -> Option<ImportPath> {
    let (name, package) = FACTORY_NAMES.iter().find(|(known, _)| *known == name)?;
    Some(ImportPath::new(package).member(name))
}

/// True if the extraction interprets the calls of a package's functions.
pub(crate) fn is_known(package: &str) -> bool {
    is_lightfast(package)
        || is_zod(package)
        || is_model_provider(package)
        || package == "ai"
        || DEDENT.contains(&package)
}

/// Returns the refusal of a value from another file or an unknown package, if it is one.
pub(crate) fn imported(value: &Value<'_>, span: Span) -> Option<Refusal> {
    let Value::Import(path) = value else {
        return None;
    };
    if path.package.starts_with('.') || path.package.starts_with('/') {
        return Some(Refusal::new(
            ProblemCode::ImportUnknown,
            span,
            format!(
                "the value comes from another file, `{}`; a bundle is one file",
                quoted(&path.package)
            ),
            "Let a bundler put the files together, with packages left outside (esbuild: bundle, format=esm, packages=external).",
        ));
    }
    if is_known(&path.package) {
        return None;
    }
    Some(Refusal::new(
        ProblemCode::ImportUnknown,
        span,
        format!(
            "the value comes from the package `{}`, which is not in the bundle",
            quoted(&path.package)
        ),
        "Let the bundler put the package into the bundle, or write the value itself.",
    ))
}

pub(crate) fn is_lightfast(package: &str) -> bool {
    package == "lightfast" || package.starts_with("lightfast/")
}

pub(crate) fn is_zod(package: &str) -> bool {
    package == "zod" || package.starts_with("zod/")
}

/// True for packages of model providers: `openai("gpt-4o")` of `@ai-sdk/openai` and similar.
pub(crate) fn is_model_provider(package: &str) -> bool {
    package.starts_with("@ai-sdk/")
        || package.starts_with("@openrouter/")
        || package == "ollama-ai-provider"
        || package == "workers-ai-provider"
}

pub(crate) fn is_dedent(path: &ImportPath) -> bool {
    DEDENT.contains(&&*path.package)
}

/// True for the functions of tslib that convert between module formats.
pub(crate) fn is_interop(path: &ImportPath) -> bool {
    &*path.package == "tslib"
        && matches!(path.path.as_slice(), [name] if matches!(&**name, "__importDefault" | "__importStar"))
}

/// Returns the name of a zod function: `object` for `zod.object` and `zod.z.object`, `iso.datetime`
/// for `zod.iso.datetime`.
pub(crate) fn zod_function(path: &ImportPath) -> Option<String> {
    if !is_zod(&path.package) {
        return None;
    }
    let names: Vec<&str> = path
        .path
        .iter()
        .map(|name| &**name)
        .filter(|name| *name != "z" && *name != "zod")
        .collect();
    (!names.is_empty()).then(|| names.join("."))
}

/// Returns the package's function that a declaration stands for, in a bundle that contains the
/// package: `node_modules/zod/...` and `string2` give `zod.string`.
pub(crate) fn bundled(file: &str, declared: &str) -> Option<ImportPath> {
    let inner = file.rsplit("node_modules/").next()?;
    let mut parts = inner.split('/');
    let first = parts.next()?;
    let package = if first.starts_with('@') {
        format!("{first}/{}", parts.next()?)
    } else {
        first.to_owned()
    };
    if !is_known(&package) {
        return None;
    }
    let path = ImportPath::new(&package);
    // Bundlers append a number to names that several files declare.
    let plain = declared.trim_end_matches(|c: char| c.is_ascii_digit());
    // `_default` is a function of zod/mini; `external_default` is the default export of a file.
    if plain.ends_with("_exports")
        || (plain.ends_with("_default") && plain != "_default")
        || plain == "z"
    {
        return Some(path);
    }
    let name = match plain {
        // These names end in digits of their own.
        _ if [
            "int32", "uint32", "int64", "uint64", "float32", "float64", "ipv4", "ipv6", "cidrv4",
            "cidrv6", "base64", "cuid2", "e164",
        ]
        .contains(&declared) =>
        {
            declared
        }
        "_default" => "_default",
        name => name.strip_prefix('_').unwrap_or(name),
    };
    Some(path.member(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundled_names_lose_what_bundlers_add() {
        for (file, declared, shown) in [
            (
                "node_modules/zod/v4/classic/external.js",
                "external_exports",
                "zod",
            ),
            (
                "node_modules/zod/v4/classic/schemas.js",
                "string2",
                "zod.string",
            ),
            (
                "node_modules/zod/v4/classic/schemas.js",
                "_enum2",
                "zod.enum",
            ),
            (
                "node_modules/zod/v4/classic/schemas.js",
                "int32",
                "zod.int32",
            ),
            (
                "node_modules/.pnpm/zod@4/node_modules/zod/x.js",
                "object",
                "zod.object",
            ),
            (
                "node_modules/zod/v4/mini/schemas.js",
                "_default2",
                "zod._default",
            ),
            (
                "node_modules/@ai-sdk/gateway/dist/index.mjs",
                "gateway",
                "@ai-sdk/gateway.gateway",
            ),
        ] {
            assert_eq!(
                bundled(file, declared).map(|path| path.shown()),
                Some(shown.to_owned())
            );
        }
        assert_eq!(bundled("node_modules/lodash/x.js", "tool"), None);
        assert_eq!(bundled("src/tool.ts", "tool"), None);
    }

    #[test]
    fn a_factory_is_known_by_its_package() {
        let path = |package, name| ImportPath::new(package).member(name);
        assert_eq!(
            factory(&path("lightfast/agent", "createAgent")),
            Some(Factory::Agent)
        );
        assert_eq!(factory(&path("other", "createAgent")), None);
        assert_eq!(factory(&path("ai", "tool")), Some(Factory::AiTool));
        assert_eq!(factory(&path("lightfast", "tool")), None);
    }
}
