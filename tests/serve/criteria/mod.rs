//! The acceptance criteria of server mode, F1 to B4: each is a test whose name begins with its id. The table of them is in
//! `main.rs`; those of other files have the id in their name as well.

mod backwards;
mod functional;
mod performance;
mod security;

use crate::server::Server;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A sandbox of `server`, and what calls a tool in it.
fn caller(server: &Server) -> impl Fn(&str, Value) -> Value + use<> {
    let admin = server.admin();
    let made = admin.post("/api/sandboxes", &json!({})).expect(201).json();
    let path = format!("/api/sandboxes/{}/call", made["id"].as_str().unwrap());
    move |tool, arguments| {
        let body = json!({ "tool": tool, "arguments": arguments });
        admin.post(&path, &body).expect(200).json()
    }
}

/// All ids.
fn ids() -> BTreeSet<String> {
    [('F', 8), ('P', 5), ('S', 4), ('B', 4)]
        .into_iter()
        .flat_map(|(kind, count)| (1..=count).map(move |number| format!("{kind}{number}")))
        .collect()
}

/// The source of every file of this suite.
fn sources(dir: &Path, into: &mut String) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn the_table_has_every_criterion_and_each_test_that_it_names_is_there() {
    let table: Vec<(&str, Vec<&str>)> = include_str!("../main.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//! | "))
        .filter_map(|line| {
            let (criterion, tests) = line.split_once(" | ")?;
            let id = criterion.split(' ').next()?;
            let tests = tests.split('`').skip(1).step_by(2).collect();
            Some((id, tests)).filter(|(id, _)| ids().contains(*id))
        })
        .collect();
    let listed: BTreeSet<String> = table.iter().map(|(id, _)| (*id).to_owned()).collect();
    assert_eq!(listed, ids());
    assert_eq!(table.len(), ids().len(), "each has one row");
    let mut all = String::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("serve"),
        &mut all,
    );
    for (id, tests) in table {
        let own = format!("{}_", id.to_lowercase());
        let names = tests.iter().map(|test| test.rsplit("::").next().unwrap());
        let own: Vec<&str> = names.filter(|name| name.starts_with(&own)).collect();
        assert!(!own.is_empty(), "{id} has no test of its own: {tests:?}");
        for name in own {
            assert!(
                all.contains(&format!("#[test]\nfn {name}()")),
                "there is no test {name}"
            );
        }
    }
}
