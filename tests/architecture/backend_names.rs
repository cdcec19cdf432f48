//! A backend's name stands where the backend is declared, and nowhere else: everybody else asks its capabilities.

use crate::{sources, without_tests};

/// Names that are words of others too (a network, a key of a server's settings): they count only beside `backend`.
const COMMON_WORDS: [&str; 2] = ["host", "command"];

/// Files that declare and drive the backends which every program has, and walls for which a mode of the guest's program
/// is named.
const BUILT_IN: [&str; 3] = [
    "crates/jail/src/confine/",
    "crates/sandbox/src/backend/",
    "crates/sandbox/src/spec/backend.rs",
];

/// The names of all backends, read from their declarations.
fn names<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<String> {
    let declaration = ["Declaration = ", "Declaration {"].concat();
    let mut names = Vec::new();
    for text in texts {
        for (at, _) in text.match_indices(&declaration) {
            let name = text[at..].split_once("name: \"");
            let name = name.and_then(|(_, rest)| rest.split_once('"'));
            names.extend(name.map(|(name, _)| name.to_owned()));
        }
    }
    names
}

/// Whether a line of code asks which backend it has before it.
fn asks_for_name(line: &str, names: &[String]) -> bool {
    let constant = ["Backend", "::"].concat();
    let is_compared = line.match_indices(&constant).any(|(at, _)| {
        let (before, rest) = (line[..at].trim_end(), &line[at + constant.len()..]);
        let end = rest.find(|c: char| !c.is_ascii_uppercase());
        let after = rest[end.unwrap_or(rest.len())..].trim_start();
        end != Some(0)
            && (before.ends_with("==")
                || before.ends_with("!=")
                || before.ends_with("contains(&")
                || after.starts_with("==")
                || after.starts_with("!=")
                || after.starts_with("=>"))
    });
    is_compared
        || names.iter().any(|name| {
            line.contains(&format!("\"{name}\""))
                && (!COMMON_WORDS.contains(&name.as_str()) || line.contains("backend"))
        })
}

#[test]
fn nobody_asks_for_the_name_of_a_backend() {
    let sources = sources();
    let names = names(sources.values().map(String::as_str));
    assert!(names.len() >= 6, "only {names:?} were found");
    let mut wrong = Vec::new();
    for (path, text) in &sources {
        let is_built_in = BUILT_IN.iter().any(|place| path.starts_with(place));
        let is_test = path.contains("/tests/") || path.ends_with("tests.rs");
        if !path.starts_with("crates/") || is_built_in || is_test {
            continue;
        }
        for line in without_tests(text).lines() {
            let code = line.trim_start();
            if !code.starts_with("//") && asks_for_name(code, &names) {
                wrong.push(format!("{path}: {code}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_question_for_a_name_is_recognised() {
    let names = ["native", "host"].map(str::to_owned);
    let constant = |name: &str| format!("{}::{name}", "Backend");
    for line in [
        format!("if backend == {} {{", constant("NATIVE")),
        format!("if {} != spec.backend {{", constant("HOST")),
        format!("order.contains(&{})", constant("NATIVE")),
        "if backend.as_str() == \"native\" {".to_owned(),
        "backend.as_str() != \"host\"".to_owned(),
        "const NAME: &str = \"native\";".to_owned(),
    ] {
        assert!(asks_for_name(&line, &names), "{line}");
    }
    for line in [
        format!("SandboxSpec::new({})", constant("NATIVE")),
        format!("use `{{}}`\", {}", constant("NATIVE")),
        "(\"host\", Net::Host)".to_owned(),
        "spec.backend == other.backend".to_owned(),
        format!("for one in {}::all() {{", "Backend"),
    ] {
        assert!(!asks_for_name(&line, &names), "{line}");
    }
}
