//! Which module of a crate names which other one: read from the text, without a compiler.
//!
//! A module here is a top-level one: a folder with all below it, or a file that has none. Test code is left out,
//! and so is the crate's root file: it declares and re-exports all others. A name that the root re-exports counts
//! as one of the module it comes from.

use std::collections::{BTreeMap, BTreeSet};

/// From one module to another, with the places that say so (`file: path`).
pub(crate) type Arrows = BTreeMap<(String, String), BTreeSet<String>>;

/// The arrows between the modules of a crate whose files, by path below `src`, are `files`.
pub(crate) fn arrows(files: &BTreeMap<String, String>) -> Arrows {
    let mut only_for_tests = BTreeSet::new();
    let mut modules = Vec::new();
    for (file, text) in files {
        let path = module_path(file);
        let tokens = without_tests(&lex(text), &path, &mut only_for_tests);
        modules.push((file, path, tokens));
    }
    modules.retain(|(_, path, _)| {
        !(1..=path.len()).any(|depth| only_for_tests.contains(&path[..depth]))
    });
    let top: BTreeSet<&str> = modules
        .iter()
        .filter_map(|(_, path, _)| path.first().map(String::as_str))
        .collect();
    let mut reexports = BTreeMap::new();
    for (_, _, tokens) in modules.iter().filter(|(_, path, _)| path.is_empty()) {
        for (index, _) in tokens
            .iter()
            .enumerate()
            .filter(|(_, token)| **token == "use")
        {
            for mut used in use_tree(tokens, &mut (index + 1)) {
                used.retain(|segment| segment != "crate" && segment != "self");
                if let [module, .., name] = used.as_slice()
                    && top.contains(module.as_str())
                {
                    reexports.insert(name.clone(), module.clone());
                }
            }
        }
    }
    let mut arrows = Arrows::new();
    for (file, path, tokens) in &modules {
        let Some(from) = path.first() else {
            continue;
        };
        for used in paths(tokens, path) {
            let Some(first) = used.first() else {
                continue;
            };
            let to = match top.get(first.as_str()) {
                Some(module) => (*module).to_owned(),
                None => match reexports.get(first) {
                    Some(module) => module.clone(),
                    None => continue,
                },
            };
            if to != *from {
                let place = format!("{file}: crate::{}", used.join("::"));
                arrows.entry((from.clone(), to)).or_default().insert(place);
            }
        }
    }
    arrows
}

/// `a/b.rs` and `a/b/mod.rs` are `a::b`; the root file is the empty path.
pub(crate) fn module_path(file: &str) -> Vec<String> {
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let mut path: Vec<String> = stem.split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|last| last == "mod") || matches!(stem, "lib" | "main") {
        path.pop();
    }
    path
}

/// Words and punctuation of Rust code. Comments, texts and characters are left out.
pub(crate) fn lex(text: &str) -> Vec<&str> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let start = at;
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            at += block_comment(rest);
        } else if let Some(len) = string_literal(rest) {
            at += len;
        } else if rest.starts_with('\'') {
            at += quote(rest);
        } else if rest.starts_with("::") {
            at += 2;
            tokens.push(&text[start..at]);
        } else if is_word(bytes[at]) {
            while at < bytes.len() && is_word(bytes[at]) {
                at += 1;
            }
            tokens.push(&text[start..at]);
        } else {
            at += 1;
            if !bytes[start].is_ascii_whitespace() {
                tokens.push(&text[start..at]);
            }
        }
    }
    tokens
}

/// Length of a block comment, which may hold others.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let pair = rest.as_bytes().get(at..at + 2).unwrap_or_default();
        match pair {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Length of a string literal with its prefix, if one begins here.
fn string_literal(rest: &str) -> Option<usize> {
    let prefix = rest.find(|c: char| !matches!(c, 'b' | 'c' | 'r'))?;
    let is_raw = rest[..prefix].ends_with('r');
    if prefix > 2 {
        return None;
    }
    let hashes = rest[prefix..]
        .bytes()
        .take_while(|byte| *byte == b'#')
        .count();
    let open = prefix + hashes;
    if rest.as_bytes().get(open) != Some(&b'"') || (hashes > 0 && !is_raw) {
        return None;
    }
    let body = &rest[open + 1..];
    if is_raw {
        let close = format!("\"{}", "#".repeat(hashes));
        let end = body.find(&close)?;
        return Some(open + 1 + end + close.len());
    }
    let mut is_escaped = false;
    let end = body.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })?;
    Some(open + 1 + end + 1)
}

/// Length of a character literal, or of the quote of a lifetime.
fn quote(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            // What is escaped may be a quote itself.
            chars.next();
            let end = chars.find(|(_, c)| *c == '\'');
            end.map_or(rest.len(), |(at, _)| at + 1)
        }
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}

/// The tokens outside of `#[cfg(test)]` items; modules in files that are such items go to `only_for_tests`.
pub(crate) fn without_tests<'t>(
    tokens: &[&'t str],
    path: &[String],
    only_for_tests: &mut BTreeSet<Vec<String>>,
) -> Vec<&'t str> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !tokens[at..].starts_with(&["#", "[", "cfg", "("]) {
            kept.push(tokens[at]);
            at += 1;
            continue;
        }
        let end = at + 1 + group(&tokens[at + 1..]);
        let condition = &tokens[at..end];
        if !condition.contains(&"test") || condition.contains(&"not") {
            kept.extend_from_slice(condition);
            at = end;
            continue;
        }
        at = end;
        if let Some(mod_at) = tokens[at..]
            .iter()
            .take(5)
            .position(|token| *token == "mod")
            && tokens.get(at + mod_at + 2) == Some(&";")
        {
            let mut module = path.to_vec();
            module.push(tokens[at + mod_at + 1].to_owned());
            only_for_tests.insert(module);
        }
        while at < tokens.len() {
            match tokens[at] {
                ";" => {
                    at += 1;
                    break;
                }
                "{" => {
                    at += group(&tokens[at..]);
                    break;
                }
                "(" | "[" => at += group(&tokens[at..]),
                _ => at += 1,
            }
        }
    }
    kept
}

/// Number of tokens of a group that begins with its opening bracket.
fn group(tokens: &[&str]) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

/// All paths in a module's code that begin with `crate`, `self` or `super`, from the crate's root on.
fn paths(tokens: &[&str], module: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    // Modules inside of the file that are open here, each with the depth of its body.
    let mut inner: Vec<(String, usize)> = Vec::new();
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match *token {
            "{" => {
                depth += 1;
                if let Some([keyword, name]) =
                    index.checked_sub(2).map(|start| &tokens[start..index])
                    && *keyword == "mod"
                {
                    inner.push(((*name).to_owned(), depth));
                }
            }
            "}" => {
                if inner.last().is_some_and(|(_, opened)| *opened == depth) {
                    inner.pop();
                }
                depth = depth.saturating_sub(1);
            }
            "crate" | "self" | "super"
                if tokens.get(index + 1) == Some(&"::")
                    && (index == 0 || tokens[index - 1] != "::") =>
            {
                let here: Vec<String> = module
                    .iter()
                    .chain(inner.iter().map(|(name, _)| name))
                    .cloned()
                    .collect();
                let used = use_tree(tokens, &mut { index });
                found.extend(used.iter().map(|path| from_root(path, &here)));
            }
            _ => {}
        }
    }
    found
}

/// A path without its leading `crate`, `self` and `super`.
fn from_root(path: &[String], here: &[String]) -> Vec<String> {
    let mut base = here.to_vec();
    let mut rest = path;
    while let [first, others @ ..] = rest {
        match first.as_str() {
            "crate" => base.clear(),
            "self" => {}
            "super" => {
                base.pop();
            }
            _ => break,
        }
        rest = others;
    }
    base.extend_from_slice(rest);
    base
}

/// The paths of a use tree, or one path, that begins at `at`; moves `at` behind it.
pub(crate) fn use_tree(tokens: &[&str], at: &mut usize) -> Vec<Vec<String>> {
    let Some(token) = tokens.get(*at) else {
        return Vec::new();
    };
    *at += 1;
    if *token == "{" {
        let mut all = Vec::new();
        while let Some(next) = tokens.get(*at) {
            match *next {
                "}" => {
                    *at += 1;
                    break;
                }
                "," => *at += 1,
                _ => all.extend(use_tree(tokens, at)),
            }
        }
        return all;
    }
    if tokens.get(*at) == Some(&"::") {
        // `::<` begins arguments of a type, which are no part of the path.
        let is_path = tokens.get(*at + 1).is_some_and(|next| {
            matches!(*next, "{" | "*") || next.starts_with(|c: char| c.is_alphabetic() || c == '_')
        });
        if is_path {
            *at += 1;
            let mut rest = use_tree(tokens, at);
            for path in &mut rest {
                path.insert(0, (*token).to_owned());
            }
            return rest;
        }
    }
    if tokens.get(*at) == Some(&"as") {
        *at += 2;
        // Under the other name it is found nowhere else, so that name is the one that counts.
        return vec![vec![(*token).to_owned(), tokens[*at - 1].to_owned()]];
    }
    vec![vec![(*token).to_owned()]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect();
        arrows(&files).into_keys().collect()
    }

    fn arrow(from: &str, to: &str) -> (String, String) {
        (from.to_owned(), to.to_owned())
    }

    #[test]
    fn every_way_to_name_a_module_counts() {
        let other = ("b/mod.rs", "pub struct B;");
        for text in [
            "use crate::b::B;",
            "use crate::{b::{self, B}, c};",
            "use super::b;",
            "fn f() -> crate::b::B { crate::b::make::<u8>() }",
            "mod inner { use super::super::b; }",
            "use crate::Renamed;",
            "const QUOTE: char = '\\''; use crate::b;",
            "fn f<'a>(x: &'a crate::b::B) {}",
        ] {
            let files = [
                ("lib.rs", "mod a; mod b; pub use b::B as Renamed;"),
                ("a.rs", text),
                other,
                ("c.rs", ""),
            ];
            assert!(of(&files).contains(&arrow("a", "b")), "{text}");
        }
    }

    #[test]
    fn a_folder_is_one_module() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod deep;"),
            ("a/deep.rs", "use super::x; use super::super::b;"),
            ("b.rs", "use crate::a::deep::Y;"),
        ];
        assert_eq!(of(&files), [arrow("a", "b"), arrow("b", "a")]);
    }

    #[test]
    fn comments_texts_and_tests_do_not_count() {
        for text in [
            "// crate::b\n/* /* */ crate::b */",
            "const A: &str = \"crate::b \\\" crate::b\";",
            "const A: &str = r#\"crate::b \" crate::b\"#;",
            "#[cfg(test)] mod tests { use crate::b; }",
            "#[cfg(test)] use crate::{b, c};",
            "#[cfg(all(test, unix))] fn f() { crate::b::x() }",
        ] {
            let files = [("lib.rs", ""), ("a.rs", text), ("b.rs", ""), ("c.rs", "")];
            assert!(of(&files).is_empty(), "{text}");
        }
        let files = [
            ("lib.rs", ""),
            ("a/mod.rs", "#[cfg(test)] mod checks;"),
            ("a/checks.rs", "use crate::b;"),
            ("b.rs", ""),
        ];
        assert!(of(&files).is_empty());
    }
}
