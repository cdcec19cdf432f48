//! Closed list of git settings that are set inside: those that affect content or commits.
//! Credentials, keys and programs of the user's machine stay outside.

/// Name of the ignore file inside.
pub(super) const EXCLUDES: &str = "ignore";
/// Name of the attributes file inside.
pub(super) const ATTRIBUTES: &str = "attributes";

/// Treatment of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carriage {
    /// The value is set inside too.
    Carried,
    /// The value is a path; the file is copied to the inside under this name.
    File(&'static str),
    /// The setting stays outside.
    NotCarried,
}

/// Single settings, by section.
const SINGLE: [(&str, &[&str]); 13] = [
    ("user", &["name", "email", "useconfigonly"]),
    ("author", &["name", "email"]),
    ("committer", &["name", "email"]),
    ("filter", &["clean", "smudge", "process", "required"]),
    (
        "core",
        &[
            "autocrlf",
            "eol",
            "safecrlf",
            "bigfilethreshold",
            "commentchar",
            "commentstring",
            "whitespace",
            "precomposeunicode",
            "quotepath",
        ],
    ),
    ("submodule", &["recurse"]),
    ("commit", &["cleanup", "status", "verbose"]),
    ("format", &["signoff"]),
    (
        "init",
        &["defaultbranch", "defaultobjectformat", "defaultrefformat"],
    ),
    ("push", &["default", "autosetupremote"]),
    ("fetch", &["prune"]),
    (
        "diff",
        &[
            "algorithm",
            "renames",
            "renamelimit",
            "noprefix",
            "mnemonicprefix",
        ],
    ),
    (
        "notes",
        &["rewriteref", "rewritemode", "displayref", "mergestrategy"],
    ),
];
/// Sections that are carried whole, except for these settings, which name programs or places or
/// need keys.
const WHOLE: [(&str, &[&str]); 11] = [
    ("i18n", &[]),
    ("apply", &[]),
    ("merge", &["tool", "guitool", "verifysignatures"]),
    ("pull", &[]),
    ("rebase", &[]),
    ("rerere", &[]),
    ("branch", &[]),
    ("status", &[]),
    ("color", &[]),
    ("column", &[]),
    ("lfs", &["access", "storage", "standalonetransferagent"]),
];
/// Prefixes of subsections of `lfs` that name programs.
const LFS_PROGRAMS: [&str; 2] = ["customtransfer.", "extension."];
/// Settings that name a file.
const FILES: [(&str, &str, &str); 5] = [
    ("core", "excludesfile", EXCLUDES),
    ("core", "attributesfile", ATTRIBUTES),
    ("commit", "template", "template"),
    ("mailmap", "file", "mailmap"),
    ("blame", "ignorerevsfile", "ignore-revs"),
];

/// Returns the treatment of a setting. `section` and `key` are in lower case.
pub(super) fn carriage_of(section: &str, subsection: Option<&str>, key: &str) -> Carriage {
    let file = FILES
        .iter()
        .find(|(of, named, _)| (*of, *named) == (section, key));
    if let Some((_, _, name)) = file {
        return Carriage::File(name);
    }
    let is_program = section == "lfs"
        && subsection.is_some_and(|name| LFS_PROGRAMS.iter().any(|start| name.starts_with(start)));
    let is_single = SINGLE
        .iter()
        .any(|(of, keys)| *of == section && keys.contains(&key));
    let is_of_whole = WHOLE
        .iter()
        .any(|(of, but)| *of == section && !but.contains(&key));
    if is_single || (is_of_whole && !is_program) {
        Carriage::Carried
    } else {
        Carriage::NotCarried
    }
}
