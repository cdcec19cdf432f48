//! No two modules of a crate need each other, neither directly nor by way of others.

use crate::imports::{Arrows, arrows};
use std::collections::{BTreeMap, BTreeSet};

/// Arrows that close a cycle today: crate, from, to, and what would have to move. This list may only become
/// shorter: an entry that is not needed any more fails the test.
const EXCEPTIONS: &[(&str, &str, &str, &str)] = &[
    // What a plan shows of a root is asked of the plan, which is made from facts.
    (
        "jail",
        "facts",
        "plan",
        "`shows` and `RANGE_IDS` would stand in `spec`",
    ),
    // A warden's child takes on ids and a filter, which are chosen one level above the system calls.
    (
        "jail",
        "sys",
        "identity",
        "the ids to take on would be passed as values",
    ),
    (
        "jail",
        "sys",
        "seccomp",
        "the filter program would be passed as a value",
    ),
    // A tool is listed by the catalog and described in its words; a call reaches the session it is part of.
    (
        "tools",
        "catalog",
        "tools",
        "the list of tools would be given to the catalog",
    ),
    (
        "tools",
        "call",
        "tool_session",
        "a call would carry a trait instead of the session",
    ),
    ("tools", "call", "policy", "as `tool_session`"),
    (
        "tools",
        "tools",
        "tool_session",
        "a tool that runs another one would be given a way to",
    ),
    // Whether a repository's files hold secrets is found out by reading them as `hide` reads all others.
    (
        "workspace",
        "git",
        "hide",
        "what recognizes a secret would be a module of its own",
    ),
    (
        "workspace",
        "base",
        "branch",
        "the reader of git objects would stand in `git`",
    ),
    // Flags are named beside the types of their values.
    (
        "settings",
        "flags",
        "agent",
        "amounts of money would be a module of their own",
    ),
    (
        "settings",
        "file",
        "workflow",
        "a workflow's words would be told apart where files are found",
    ),
    // What shows text on the terminal also reads signals, and the other way round.
    (
        "glovebox",
        "streams",
        "render",
        "sizes and signals of the terminal would be one module",
    ),
    ("glovebox", "sync", "cmd", "commands would only call"),
];

/// The modules that need each other, in groups.
fn cycles(arrows: &Arrows) -> Vec<BTreeSet<String>> {
    let mut reachable: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in arrows.keys() {
        reachable.entry(from).or_default().insert(to);
    }
    // A few dozen modules: repeated until nothing is added.
    loop {
        let mut has_grown = false;
        for from in reachable.keys().copied().collect::<Vec<_>>() {
            let more: BTreeSet<&str> = reachable[from]
                .iter()
                .filter_map(|next| reachable.get(next))
                .flatten()
                .copied()
                .collect();
            let known = reachable.entry(from).or_default();
            let before = known.len();
            known.extend(more);
            has_grown |= known.len() > before;
        }
        if !has_grown {
            break;
        }
    }
    let mut groups: Vec<BTreeSet<String>> = Vec::new();
    for (module, targets) in reachable
        .iter()
        .filter(|(module, all)| all.contains(*module))
    {
        if groups.iter().any(|group| group.contains(*module)) {
            continue;
        }
        let returns = |other: &&&str| {
            reachable
                .get(**other)
                .is_some_and(|all| all.contains(module))
        };
        groups.push(
            targets
                .iter()
                .filter(returns)
                .map(|other| (*other).to_owned())
                .collect(),
        );
    }
    groups
}

/// What is wrong with the modules of a crate, given the exceptions for it.
fn complaints(arrows: &Arrows, exceptions: &[(&str, &str)]) -> Vec<String> {
    let is_excepted = |from: &str, to: &str| exceptions.contains(&(from, to));
    let mut rest = arrows.clone();
    rest.retain(|(from, to), _| !is_excepted(from, to));
    let mut complaints: Vec<String> = cycles(&rest)
        .iter()
        .map(|group| {
            let inside = |name: &String| group.contains(name);
            let places: Vec<String> = rest
                .iter()
                .filter(|((from, to), _)| inside(from) && inside(to))
                .map(|((from, to), places)| {
                    let place = places.first().map(String::as_str).unwrap_or_default();
                    format!("  {from} -> {to} ({place}, {} in all)", places.len())
                })
                .collect();
            format!("these modules need each other:\n{}", places.join("\n"))
        })
        .collect();
    for (from, to) in exceptions {
        let key = ((*from).to_owned(), (*to).to_owned());
        let closes_a_cycle = arrows.get(&key).is_some_and(|places| {
            let mut with = rest.clone();
            with.insert(key, places.clone());
            !cycles(&with).is_empty()
        });
        if !closes_a_cycle {
            complaints.push(format!(
                "the exception {from} -> {to} is not needed any more"
            ));
        }
    }
    complaints
}

#[test]
fn modules_of_a_crate_depend_in_one_direction() {
    let mut crates: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (path, text) in crate::sources() {
        let below = path.strip_prefix("crates/").unwrap_or(&path);
        if let Some((name, file)) = below.split_once("/src/") {
            crates
                .entry(name.to_owned())
                .or_default()
                .insert(file.to_owned(), text);
        }
    }
    let mut complained = Vec::new();
    for (name, files) in &crates {
        let exceptions: Vec<(&str, &str)> = EXCEPTIONS
            .iter()
            .filter(|(of, ..)| of == name)
            .map(|(_, from, to, _)| (*from, *to))
            .collect();
        for complaint in complaints(&arrows(files), &exceptions) {
            complained.push(format!("{name}: {complaint}"));
        }
    }
    for (name, from, to, reason) in EXCEPTIONS {
        assert!(crates.contains_key(*name), "there is no crate {name}");
        assert!(!reason.is_empty(), "{name}: {from} -> {to} has no reason");
    }
    assert!(complained.is_empty(), "\n{}", complained.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted(pairs: &[(&str, &str)]) -> Arrows {
        pairs
            .iter()
            .map(|(from, to)| {
                let key = ((*from).to_owned(), (*to).to_owned());
                (key, BTreeSet::from(["here".to_owned()]))
            })
            .collect()
    }

    #[test]
    fn a_planted_cycle_is_found_and_nothing_else() {
        let arrows = planted(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a")]);
        let group = BTreeSet::from(["a", "b", "c"].map(str::to_owned));
        assert_eq!(cycles(&arrows), [group]);
        assert_eq!(complaints(&arrows, &[]).len(), 1);
        assert!(complaints(&planted(&[("a", "b"), ("b", "c"), ("a", "c")]), &[]).is_empty());
    }

    #[test]
    fn an_exception_counts_only_while_it_is_needed() {
        let arrows = planted(&[("a", "b"), ("b", "a"), ("b", "c")]);
        assert!(complaints(&arrows, &[("b", "a")]).is_empty());
        for (from, to) in [("b", "c"), ("c", "a")] {
            let said = complaints(&arrows, &[("b", "a"), (from, to)]);
            assert_eq!(
                said,
                [format!(
                    "the exception {from} -> {to} is not needed any more"
                )]
            );
        }
    }

    #[test]
    fn a_cycle_in_code_is_found() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use b::B;"),
            ("a/mod.rs", "use crate::B;"),
            ("b.rs", "fn f() { super::a::g() }"),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        let said = complaints(&arrows(&BTreeMap::from(files)), &[]);
        assert_eq!(said.len(), 1);
        assert!(
            said[0].contains("a -> b (a/mod.rs: crate::B, 1 in all)"),
            "{said:?}"
        );
    }
}
