//! The shape of the house: which crate and which module may know which, where `unsafe` may stand, how a file begins,
//! and which tests hold what the documents promise.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod backend_names;
mod edges;
mod imports;
mod modules;
mod promises;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest file that needs no stated reason.
const MAX_LINES: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every Rust file of the project, with its path relative to the root.
fn sources() -> BTreeMap<String, String> {
    fn walk(dir: &Path, root: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    walk(&path, root, found);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let relative = path
                    .strip_prefix(root)
                    .unwrap()
                    .to_string_lossy()
                    .into_owned();
                found.insert(relative, fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    for dir in [
        "crates", "backends", "xtask", "testkit", "tests", "benches", "fuzz",
    ] {
        walk(&root().join(dir), &root(), &mut found);
    }
    assert!(found.len() > 100, "only {} files were found", found.len());
    found
}

#[test]
fn unsafe_code_stands_in_one_place() {
    // Put together so that this file does not name what it looks for.
    let word = ["un", "safe"].concat();
    for (path, text) in sources() {
        if path.starts_with("crates/jail/src/sys/") {
            continue;
        }
        for line in text.lines() {
            let code = line.split("//").next().unwrap_or_default();
            let uses = ["{", "fn", "impl", "extern", "trait"]
                .iter()
                .any(|next| code.contains(&format!("{word} {next}")));
            assert!(!uses, "{path}: {line}");
        }
    }
}

#[test]
fn every_file_says_what_it_is_for_and_is_finished() {
    let unfinished = ["todo", "unimplemented", "dbg"].map(|name| format!("{name}!("));
    for (path, text) in sources() {
        assert!(text.starts_with("//!"), "{path} does not begin with `//!`");
        let lines = text.lines().count();
        assert!(
            lines <= MAX_LINES,
            "{path} has {lines} lines; does it hold one thing?"
        );
        for word in &unfinished {
            assert!(!text.contains(word.as_str()), "{path} has `{word}`");
        }
    }
}

/// Crates that serve every surface: the command line, configuration files, tools and MCP. Each surface has words of its
/// own for what can be chosen (`glovebox_proto::Remedy`).
const WORDLESS: [&str; 14] = [
    "agent",
    "bundle",
    "egress",
    "gitignore",
    "guest",
    "jail",
    "js",
    "mcp",
    "proto",
    "runner",
    "sandbox",
    "session",
    "tools",
    "workspace",
];

/// Flags of other programs that messages of these crates advise or that they read.
const FLAGS_OF_OTHERS: [(&str, &str); 15] = [
    ("--add", "git config, and usermod"),
    ("--bundle", "esbuild"),
    ("--enable-auto-tool-choice", "vLLM"),
    ("--format", "esbuild"),
    ("--git", "the first line of a patch"),
    ("--global", "git config"),
    ("--jinja", "llama.cpp"),
    ("--mount", "docker run"),
    ("--scope", "systemd-run"),
    ("--security-opt", "docker run"),
    ("--set-version", "wsl"),
    ("--tool-call-parser", "vLLM"),
    ("--unshare", "bubblewrap"),
    ("--user", "systemd-run"),
    ("--version", "every program that an agent is told about"),
];

/// The part of a file that is compiled into programs.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text)
}

#[test]
fn libraries_name_no_flags_of_the_command_line() {
    let mut met = 0;
    for (path, text) in sources() {
        let is_library = WORDLESS
            .iter()
            .any(|name| path.starts_with(&format!("crates/{name}/src/")));
        if !is_library || path.contains("/tests/") || path.ends_with("tests.rs") {
            continue;
        }
        for line in without_tests(&text).lines() {
            let code = line.trim_start();
            if code.starts_with("//") {
                continue;
            }
            // In a list of arguments a flag is a literal of its own and follows a quote.
            let flags = code.match_indices("--").filter(|(at, _)| {
                code[..*at].ends_with([' ', '`', '('])
                    && code[at + 2..].starts_with(|next: char| next.is_ascii_lowercase())
            });
            for (at, _) in flags {
                met += 1;
                let flag = &code[at..];
                assert!(
                    FLAGS_OF_OTHERS
                        .iter()
                        .any(|(known, _)| flag.starts_with(known)),
                    "{path} names a flag; a remedy names a setting: {code}"
                );
            }
        }
    }
    assert!(met > 5, "only {met} flags of other programs were met");
}
