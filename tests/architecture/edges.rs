//! Which crate may use which: by what its manifest names, and by what its sources import.
//!
//! A manifest alone proves little: a crate that re-exports another one hands it on to all that use the first. So the
//! sources are read too, and a name that a crate only re-exports counts as one of the crate that defines it.

use crate::imports::{self, lex, use_tree, without_tests};
use crate::{root, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The crates that each crate may use, in its manifest and in its sources. Tests may use more.
const EDGES: [(&str, &[&str]); 28] = [
    ("glovebox-proto", &[]),
    ("glovebox-spec", &[]),
    ("glovebox-jail", &["glovebox-spec"]),
    ("glovebox-js", &["glovebox-jail"]),
    ("glovebox-gitignore", &[]),
    ("glovebox-bundle", &["glovebox-jail"]),
    (
        "glovebox-guest",
        &["glovebox-gitignore", "glovebox-jail", "glovebox-proto"],
    ),
    ("glovebox-egress", &["glovebox-proto"]),
    (
        "glovebox-sandbox",
        &[
            "glovebox-egress",
            "glovebox-jail",
            "glovebox-proto",
            "glovebox-spec",
        ],
    ),
    (
        "glovebox-carrier",
        &["glovebox-proto", "glovebox-sandbox", "glovebox-spec"],
    ),
    (
        "glovebox-sprites",
        &[
            "glovebox-carrier",
            "glovebox-egress",
            "glovebox-proto",
            "glovebox-sandbox",
            "glovebox-spec",
        ],
    ),
    (
        "glovebox-aio",
        &[
            "glovebox-carrier",
            "glovebox-proto",
            "glovebox-sandbox",
            "glovebox-spec",
        ],
    ),
    (
        "glovebox-confined",
        &[
            "glovebox-jail",
            "glovebox-proto",
            "glovebox-sandbox",
            "glovebox-spec",
        ],
    ),
    ("glovebox-contract", &[]),
    (
        "glovebox-made-up",
        &[
            "glovebox",
            "glovebox-carrier",
            "glovebox-proto",
            "glovebox-sandbox",
            "glovebox-spec",
        ],
    ),
    (
        "glovebox-workspace",
        &[
            "glovebox-gitignore",
            "glovebox-proto",
            "glovebox-sandbox",
            "glovebox-spec",
        ],
    ),
    (
        "glovebox",
        &[
            "glovebox-agent",
            "glovebox-aio",
            "glovebox-bundle",
            "glovebox-confined",
            "glovebox-egress",
            "glovebox-js",
            "glovebox-mcp",
            "glovebox-proto",
            "glovebox-runner",
            "glovebox-sandbox",
            "glovebox-server",
            "glovebox-session",
            "glovebox-settings",
            "glovebox-spec",
            "glovebox-sprites",
            "glovebox-tools",
            "glovebox-workspace",
        ],
    ),
    (
        "glovebox-server",
        &[
            "glovebox-agent",
            "glovebox-bundle",
            "glovebox-egress",
            "glovebox-js",
            "glovebox-mcp",
            "glovebox-proto",
            "glovebox-runner",
            "glovebox-sandbox",
            "glovebox-session",
            "glovebox-settings",
            "glovebox-spec",
            "glovebox-tools",
            "glovebox-workspace",
        ],
    ),
    (
        "glovebox-session",
        &[
            "glovebox-agent",
            "glovebox-bundle",
            "glovebox-egress",
            "glovebox-js",
            "glovebox-mcp",
            "glovebox-proto",
            "glovebox-runner",
            "glovebox-sandbox",
            "glovebox-settings",
            "glovebox-spec",
            "glovebox-tools",
            "glovebox-workspace",
        ],
    ),
    (
        "glovebox-settings",
        &[
            "glovebox-agent",
            "glovebox-egress",
            "glovebox-mcp",
            "glovebox-proto",
            "glovebox-sandbox",
            "glovebox-spec",
            "glovebox-tools",
            "glovebox-workspace",
        ],
    ),
    (
        "glovebox-mcp",
        &["glovebox-agent", "glovebox-proto", "glovebox-tools"],
    ),
    (
        "glovebox-tools",
        &[
            "glovebox-egress",
            "glovebox-js",
            "glovebox-proto",
            "glovebox-sandbox",
            "glovebox-spec",
        ],
    ),
    (
        "glovebox-runner",
        &[
            "glovebox-egress",
            "glovebox-js",
            "glovebox-proto",
            "glovebox-sandbox",
            "glovebox-spec",
        ],
    ),
    ("glovebox-agent", &["glovebox-proto", "glovebox-tools"]),
    ("testkit", &[]),
    ("xtask", &[]),
    (
        "glovebox-tests",
        &[
            "glovebox-proto",
            "glovebox-sandbox",
            "glovebox-tools",
            "glovebox-workspace",
        ],
    ),
    (
        "glovebox-benches",
        &[
            "glovebox-agent",
            "glovebox-bundle",
            "glovebox-egress",
            "glovebox-jail",
            "glovebox-js",
            "glovebox-proto",
            "glovebox-runner",
            "glovebox-sandbox",
            "glovebox-spec",
            "glovebox-tools",
            "glovebox-workspace",
        ],
    ),
];

/// The backends that are crates of their own. The program names them in `backends.rs`, where it registers them.
const BACKENDS: [&str; 3] = ["glovebox-aio", "glovebox-confined", "glovebox-sprites"];

/// Crates that may wait asynchronously: for a model, for another program, for many connections at once. The guest and
/// the host side of the wall are synchronous on purpose.
const ASYNC: [&str; 8] = [
    "glovebox-agent",
    "glovebox-aio",
    "glovebox-carrier",
    "glovebox-contract",
    "glovebox-egress",
    "glovebox-mcp",
    "glovebox-server",
    "glovebox-sprites",
];

#[test]
fn manifests_name_only_allowed_crates() {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let own: Vec<&str> = packages
        .iter()
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let allowed = EDGES.iter().find(|(known, _)| *known == name);
        let (_, allowed) =
            allowed.unwrap_or_else(|| panic!("`{name}` has no place in the order of crates"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let target = dependency["name"].as_str().unwrap();
            let is_for_tests = dependency["kind"] == "dev";
            assert!(
                target != "tokio" || ASYNC.contains(&name),
                "`{name}` must not depend on tokio"
            );
            if own.contains(&target) && !is_for_tests {
                assert!(
                    allowed.contains(&target),
                    "`{name}` must not depend on `{target}`"
                );
            }
        }
    }
}

/// Names that a crate re-exports, each with the crate that defines it, by crate.
type Reexports = BTreeMap<String, BTreeMap<String, String>>;

/// Tokens of the sources of a crate without their tests, by file.
type CrateTokens<'t> = BTreeMap<&'t str, Vec<&'t str>>;

/// A name from another crate that stands in a source.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Import {
    /// Crate that names it.
    user: String,
    /// Crate that defines it.
    defined_in: String,
    /// File and path, as written there.
    place: String,
}

/// The crate of a path's first word: `glovebox_jail` is `glovebox-jail`.
fn crate_of(word: &str, own: &BTreeSet<String>) -> Option<String> {
    let name = word.replace('_', "-");
    own.contains(&name).then_some(name)
}

/// Reads a crate's sources.
fn crate_tokens(files: &BTreeMap<String, String>) -> CrateTokens<'_> {
    let mut only_for_tests = BTreeSet::new();
    let mut all = Vec::new();
    for (file, text) in files {
        let path = imports::module_path(file);
        let tokens = without_tests(&lex(text), &path, &mut only_for_tests);
        all.push((file.as_str(), path, tokens));
    }
    all.retain(|(_, path, _)| {
        !(1..=path.len()).any(|depth| only_for_tests.contains(&path[..depth]))
    });
    all.into_iter()
        .map(|(file, _, tokens)| (file, tokens))
        .collect()
}

/// The paths of every `use`, and whether it is one that other crates can go through.
fn uses(tokens: &[&str]) -> Vec<(Vec<String>, bool)> {
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        if *token == "use" {
            let is_public = index > 0 && tokens[index - 1] == "pub";
            let paths = use_tree(tokens, &mut (index + 1));
            found.extend(paths.into_iter().map(|path| (path, is_public)));
        }
    }
    found
}

/// Finds what each crate re-exports of others, through chains of re-exports too.
fn reexports(crates: &BTreeMap<String, CrateTokens<'_>>, own: &BTreeSet<String>) -> Reexports {
    let mut found = Reexports::new();
    // Each round follows one more link of a chain.
    loop {
        let mut is_new = false;
        for (name, files) in crates {
            for (path, is_public) in files.values().flat_map(|tokens| uses(tokens)) {
                let Some((first, rest)) = path.split_first() else {
                    continue;
                };
                if !is_public {
                    continue;
                }
                let target = crate_of(first, own).filter(|target| target != name);
                let through = found.get(target.as_ref().unwrap_or(name));
                let through = through.and_then(|known| rest.iter().find_map(|one| known.get(one)));
                let Some(defined_in) = through.cloned().or(target) else {
                    continue;
                };
                let exported = path.iter().rev().find(|segment| *segment != "self");
                let exported = exported.unwrap_or(first).clone();
                assert_ne!(exported, "*", "`{name}` re-exports all of `{defined_in}`");
                let known = found.entry(name.clone()).or_default();
                is_new |= known.insert(exported, defined_in).is_none();
            }
        }
        if !is_new {
            return found;
        }
    }
}

/// What the sources of the crates import from each other.
fn imports_between(
    crates: &BTreeMap<String, CrateTokens<'_>>,
    own: &BTreeSet<String>,
) -> BTreeSet<Import> {
    let reexports = reexports(crates, own);
    let mut found = BTreeSet::new();
    for (user, files) in crates {
        for (file, tokens) in files {
            // Names that stand for a path into another crate within this file.
            let mut local: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (path, _) in uses(tokens) {
                if path
                    .first()
                    .is_some_and(|first| crate_of(first, own).is_some())
                {
                    let name = path.iter().rev().find(|segment| *segment != "self");
                    assert_ne!(
                        name.map(String::as_str),
                        Some("*"),
                        "{file} imports all of {path:?}; name what is used"
                    );
                    local.insert(name.cloned().unwrap_or_default(), path.clone());
                }
            }
            for (index, token) in tokens.iter().enumerate() {
                let is_continued = index > 1
                    && tokens[index - 1] == "::"
                    && tokens[index - 2].starts_with(|c: char| c.is_alphanumeric() || c == '_');
                // A word alone is a variable of that name, but not in a `use`.
                let is_path =
                    tokens.get(index + 1) == Some(&"::") || index > 0 && tokens[index - 1] == "use";
                let is_known = crate_of(token, own).is_some() || local.contains_key(*token);
                if is_continued || !is_path || !is_known {
                    continue;
                }
                for path in use_tree(tokens, &mut { index }) {
                    let whole: Vec<String> = match local.get(&path[0]) {
                        Some(start) => start.iter().chain(&path[1..]).cloned().collect(),
                        None => path,
                    };
                    let Some(target) = crate_of(&whole[0], own).filter(|one| one != user) else {
                        continue;
                    };
                    let known = reexports.get(&target);
                    let through =
                        known.and_then(|known| whole.iter().find_map(|one| known.get(one)));
                    let place = format!("{file}: {}", whole.join("::"));
                    let defined_in = [Some(target.clone()), through.cloned()];
                    found.extend(defined_in.into_iter().flatten().map(|defined_in| Import {
                        user: user.clone(),
                        defined_in,
                        place: place.clone(),
                    }));
                }
            }
        }
    }
    found.retain(|import| import.user != import.defined_in);
    found
}

/// The directory of a crate's sources, by the first folders of a path.
fn crate_name(path: &str) -> Option<(String, &str)> {
    let (dir, below) = path.split_once("/src/")?;
    let name = match dir
        .strip_prefix("crates/")
        .or(dir.strip_prefix("backends/"))
    {
        Some("glovebox") => "glovebox".to_owned(),
        Some(name) => format!("glovebox-{name}"),
        None if dir == "benches" => "glovebox-benches".to_owned(),
        None => dir.to_owned(),
    };
    Some((name, below))
}

#[test]
fn sources_import_only_allowed_crates() {
    let own: BTreeSet<String> = EDGES.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut files: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (path, text) in sources() {
        if let Some((name, below)) = crate_name(&path)
            && own.contains(&name)
        {
            let of_crate = files.entry(name).or_default();
            of_crate.insert(below.to_owned(), text);
        }
    }
    assert!(files.len() > 20, "only {} crates were found", files.len());
    let crates = files
        .iter()
        .map(|(name, files)| (name.clone(), crate_tokens(files)))
        .collect();
    let imports = imports_between(&crates, &own);
    assert!(
        imports.len() > 500,
        "only {} imports were found",
        imports.len()
    );
    let wrong: Vec<&Import> = imports
        .iter()
        .filter(|import| {
            let row = EDGES.iter().find(|(name, _)| *name == import.user);
            row.is_none_or(|(_, allowed)| !allowed.contains(&import.defined_in.as_str()))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for import in &imports {
        let is_registration = import.place.starts_with("backends.rs: ");
        assert!(
            !BACKENDS.contains(&import.defined_in.as_str()) || is_registration,
            "backends are named where they are registered alone: {import:?}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The crates that a source of `glovebox-c` names, where `glovebox-a` re-exports `glovebox-b`.
    fn named(text: &str) -> Vec<String> {
        let own = ["glovebox-a", "glovebox-b", "glovebox-c"];
        let own: BTreeSet<String> = own.into_iter().map(str::to_owned).collect();
        let source = |text: &str| BTreeMap::from([("lib.rs".to_owned(), text.to_owned())]);
        let a = source(
            "pub use glovebox_b as b; pub use glovebox_b::deep::Thing as Other; mod inner { pub \
             use glovebox_b::Hidden; } pub use inner::Hidden as Shown; pub(crate) use \
             glovebox_b::Private; pub struct Own;",
        );
        let c = source(text);
        let crates = BTreeMap::from([
            ("glovebox-a".to_owned(), crate_tokens(&a)),
            ("glovebox-c".to_owned(), crate_tokens(&c)),
        ]);
        let imports = imports_between(&crates, &own).into_iter();
        let of_c: BTreeSet<String> = imports
            .filter(|import| import.user == "glovebox-c")
            .map(|import| import.defined_in)
            .collect();
        of_c.into_iter().collect()
    }

    #[test]
    fn a_name_counts_as_one_of_the_crate_that_defines_it() {
        for text in [
            "use glovebox_a::b::X;",
            "use glovebox_a::{Own, b::X};",
            "use glovebox_a as short; fn f() -> short::b::X { loop {} }",
            "use glovebox_a::b; fn f() -> b::X { loop {} }",
            "fn f() -> glovebox_a::b::X { loop {} }",
            "use glovebox_a::Other;",
            "use glovebox_a::Shown;",
            "fn f() { ::glovebox_a::Shown::new() }",
        ] {
            assert_eq!(named(text), ["glovebox-a", "glovebox-b"], "{text}");
        }
    }

    #[test]
    fn other_names_do_not_count() {
        for text in [
            "use glovebox_a::Own;",
            "use glovebox_a::Own; // glovebox_a::b::X",
            "use glovebox_a::Private;",
            "use glovebox_a::Own; #[cfg(test)] mod tests { use glovebox_a::b::X; }",
        ] {
            assert_eq!(named(text), ["glovebox-a"], "{text}");
        }
    }
}
