//! Licences of everything that is linked into the shipped binary, as one text for the packages of
//! `dist`.
//!
//! In: `cargo metadata`. Covers the crates that the binary and the two programs inside it depend
//! on, without the dependencies of build scripts and tests. Out: each crate with its licence
//! expression, then each distinct licence text once, with the crates that have it.

use crate::step::{self, cargo};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Packages of the binary, and of the programs that it contains as data.
const ROOTS: [&str; 3] = ["glovebox", "glovebox-guest", "glovebox-js"];
/// Prefixes of the names of licence files, in lower case.
const FILES: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];

/// Returns the text.
///
/// # Errors
/// If cargo cannot report the dependencies, or a licence file cannot be read.
pub(crate) fn third_party() -> Result<String> {
    let metadata = step::output(&mut cargo([
        "metadata",
        "--format-version",
        "1",
        "--locked",
    ]))?;
    describe(&serde_json::from_str(&metadata)?)
}

fn describe(metadata: &Value) -> Result<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata["packages"]);
    let by_id: BTreeMap<&str, &Value> = packages
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let linked = linked(metadata);
    let mut text = String::from(
        "Glovebox is linked with these crates. Each comes under its own licence; the texts follow.\n\n",
    );
    let mut carriers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in linked.iter().filter_map(|id| by_id.get(id.as_str())) {
        // A package without a source belongs to this repository.
        if package["source"].is_null() {
            continue;
        }
        let name = format!(
            "{} {}",
            package["name"].as_str().unwrap_or_default(),
            package["version"].as_str().unwrap_or_default()
        );
        let licence = package["license"].as_str().unwrap_or("see its file");
        writeln!(text, "{name}: {licence}")?;
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        for licence in licence_texts(manifest.parent().unwrap_or(manifest))? {
            carriers.entry(licence).or_default().insert(name.clone());
        }
    }
    for (licence, names) in carriers {
        let names: Vec<String> = names.into_iter().collect();
        write!(
            text,
            "\n{}\n{}:\n\n{licence}\n",
            "-".repeat(80),
            names.join(", ")
        )?;
    }
    Ok(text)
}

/// Returns the ids of all packages that the roots are linked with, sorted.
fn linked(metadata: &Value) -> BTreeSet<String> {
    let nodes: BTreeMap<&str, &Value> = metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let is_root = |id: &&str| {
        metadata["packages"].as_array().is_some_and(|packages| {
            packages.iter().any(|package| {
                package["id"] == **id && ROOTS.iter().any(|root| package["name"] == *root)
            })
        })
    };
    let mut waiting: Vec<&str> = nodes.keys().copied().filter(|id| is_root(id)).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !found.insert(id.to_owned()) {
            continue;
        }
        let dependencies = nodes.get(id).and_then(|node| node["deps"].as_array());
        for dependency in dependencies.into_iter().flatten() {
            let is_linked = dependency["dep_kinds"]
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()));
            if let (true, Some(id)) = (is_linked, dependency["pkg"].as_str()) {
                waiting.push(id);
            }
        }
    }
    found
}

/// Reads the licence files in a package's directory.
fn licence_texts(dir: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        if path.is_file() && FILES.iter().any(|prefix| name.starts_with(prefix)) {
            paths.push(path);
        }
    }
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok(String::from_utf8_lossy(&text).trim().replace('\r', ""))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_that_are_linked_are_named_with_their_texts() {
        let text = third_party().expect("licences");
        for named in ["\nserde 1.", "\nrustix ", "\nclap "] {
            assert!(text.contains(named), "{named} is not named");
        }
        assert!(
            text.contains("Permission is hereby granted"),
            "no text of a licence"
        );
        // A package of this repository, and a crate that only tests use.
        for absent in ["\nglovebox-jail ", "\ninsta "] {
            assert!(!text.contains(absent), "{absent} is named");
        }
        assert!(!text.contains(".cargo"), "a path of this machine");
    }
}
