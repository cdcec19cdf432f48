//! Lines by pattern, beside `rg`.

use super::client::Guest;
use super::tree::{Tree, pattern, plan};
use super::{check, in_order, words};
use glovebox_proto::{Case, Code, Fault, Grep, GrepMode, GrepReport, GrepTarget, Reply, Request};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

/// One line of a file, without its end.
fn line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => "[abAB ._]{0,6}".prop_map(String::into_bytes),
        2 => select(vec![&b""[..], b"fn a() {}", b"ab\r", b"\r", b"a\xffb", "é".as_bytes(), "aÉb".as_bytes(), b"a\tb", b"a\x0cb", b"\xe9a", b"a.b*", b"\x1b[0m"]).prop_map(<[u8]>::to_vec),
    ]
}

pub(crate) fn content() -> impl Strategy<Value = Vec<u8>> {
    let text = || {
        (vec(line(), 0..12), any::<bool>()).prop_map(|(lines, ends)| {
            let mut text = lines.join(&b'\n');
            if ends && !lines.is_empty() {
                text.push(b'\n');
            }
            text
        })
    };
    prop_oneof![
        12 => text(),
        1 => text().prop_map(|text| [b"\xef\xbb\xbf", &text[..]].concat()),
        1 => text().prop_map(|text| [&text[..], b"\0", &text[..]].concat()),
        1 => text().prop_map(|text| std::iter::once(0xfeff)
            .chain(String::from_utf8_lossy(&text).encode_utf16()).flat_map(u16::to_le_bytes).collect()),
    ]
}

/// A regular expression. What can match nothing at all is left to those for single lines: `rg` 13 does not
/// find every empty match over several lines.
fn expression() -> impl Strategy<Value = String> {
    const LEAVES: &[&str] = &[
        "a",
        "b",
        "A",
        "ab",
        ".",
        "\\.",
        "\\w",
        "\\W",
        "\\s",
        "\\S",
        "[ab]",
        "[^a]",
        "é",
        "_",
        " ",
        "\\d",
        "\\pL",
        "\\n",
        "\n",
        "\\r",
        "\\x{e9}",
        "(?s:.)",
        "[[:upper:]]",
        "(?i:b)",
    ];
    let more = prop_oneof![
        4 => select(LEAVES).prop_map(str::to_owned),
        1 => (select(LEAVES), select(LEAVES)).prop_map(|(a, b)| format!("(?:{a}|{b})")),
        1 => (select(LEAVES), select(vec!["*", "+", "?", "{2}", "*?"])).prop_map(|(a, sign)| format!("(?:{a}){sign}")),
        1 => Just("\\b".to_owned()),
    ];
    let ends = (select(vec!["", "", "", "^"]), select(vec!["", "", "", "$"]));
    (select(LEAVES), vec(more, 0..3), ends)
        .prop_map(|(first, more, (begin, end))| format!("{begin}{first}{}{end}", more.concat()))
}

/// Patterns for lines one by one, or of which both must say that they are none.
const FOR_LINES: &[&str] = &[
    "^",
    "$",
    "^$",
    "a*",
    "b?",
    "x|",
    "(",
    "[",
    "*",
    "a{2",
    "\\",
    "(?P<n>a)",
    "\\xff",
    "(?-u:\\xff)",
    "\\z",
];

/// How lines are looked for.
#[derive(Debug, Clone)]
struct GrepQuery {
    pattern: String,
    is_literal: bool,
    ignores_case: bool,
    is_multiline: bool,
    globs: Vec<String>,
    types: Vec<&'static str>,
    before: u16,
    after: u16,
}

fn wish() -> impl Strategy<Value = GrepQuery> {
    let turned = (prop::bool::weighted(0.3), pattern())
        .prop_map(|(turns, pattern)| format!("{}{pattern}", if turns { "!" } else { "" }));
    let globs = prop_oneof![3 => Just(Vec::new()), 1 => vec(turned, 1..3)];
    let types =
        prop_oneof![5 => Just(Vec::new()), 1 => vec(select(vec!["rust", "txt", "c"]), 1..3)];
    let pattern = prop_oneof![
        4 => (expression(), prop::bool::weighted(0.3)),
        1 => select(FOR_LINES).prop_map(|pattern| (pattern.to_owned(), false)),
    ];
    let signs = (prop::bool::weighted(0.2), any::<bool>());
    (pattern, signs, globs, types, 0_u16..3, 0_u16..3).prop_map(
        |((pattern, is_multiline), (is_literal, ignores_case), globs, types, before, after)| {
            GrepQuery {
                // Which patterns with an end of line in them are refused when lines are searched one by one
                // is not the same in all versions of `rg`.
                is_multiline: is_multiline || pattern.contains('\n') || pattern.contains("\\n"),
                pattern,
                is_literal,
                ignores_case,
                // With both, `rg` gives what fits either; here both must fit.
                types: if globs.is_empty() { types } else { Vec::new() },
                globs,
                before,
                after,
            }
        },
    )
}

impl GrepQuery {
    fn request(&self, root: &Path) -> Grep {
        Grep {
            target: GrepTarget::Path(ByteBuf::from(root.as_os_str().as_bytes())),
            pattern: self.pattern.clone(),
            is_literal: self.is_literal,
            case: if self.ignores_case {
                Case::Insensitive
            } else {
                Case::Sensitive
            },
            is_multiline: self.is_multiline,
            globs: self.globs.clone(),
            types: self.types.iter().map(|&kind| kind.to_owned()).collect(),
            use_ignore: false,
            mode: GrepMode::Lines,
            before: self.before,
            after: self.after,
            offset: 0,
            max_hits: 1000,
            deadline_ms: 20_000,
        }
    }

    fn words(&self) -> Vec<OsString> {
        let (before, after) = (self.before.to_string(), self.after.to_string());
        let mut args = words(&[
            "--line-number",
            "--no-heading",
            "--with-filename",
            "--color=never",
            "--no-context-separator",
        ]);
        args.extend(words(&[
            "--before-context",
            &before,
            "--after-context",
            &after,
        ]));
        for (is_wanted, word) in [
            (self.is_literal, "--fixed-strings"),
            (self.ignores_case, "--ignore-case"),
            (self.is_multiline, "--multiline"),
            (self.is_multiline, "--multiline-dotall"),
        ] {
            if is_wanted {
                args.push(word.into());
            }
        }
        args.extend(
            self.globs
                .iter()
                .map(|glob| format!("--glob={glob}").into()),
        );
        args.extend(
            self.types
                .iter()
                .map(|kind| format!("--type={kind}").into()),
        );
        args.push(format!("--regexp={}", self.pattern).into());
        args.push("./".into());
        args
    }
}

/// What is told of one line: its number, whether it matches, its text.
type LineRecord = (u64, bool, Vec<u8>);

fn lines_of(found: &GrepReport) -> BTreeMap<Vec<u8>, Vec<LineRecord>> {
    let told = |line: &glovebox_proto::Line| (line.number, line.is_match, line.text.to_vec());
    found
        .files
        .iter()
        .map(|file| (file.path.to_vec(), file.lines.iter().map(told).collect()))
        .collect()
}

/// What `rg` printed: `./PATH\0NUMBER:TEXT`, or `-` in place of the colon.
fn lines_of_rg(printed: &[u8]) -> BTreeMap<Vec<u8>, Vec<LineRecord>> {
    let mut files: BTreeMap<Vec<u8>, Vec<LineRecord>> = BTreeMap::new();
    for line in printed
        .strip_suffix(b"\n")
        .unwrap_or(printed)
        .split(|byte| *byte == b'\n')
    {
        // A file that is binary after all: what came before is not shown by us.
        if line.is_empty() || line.windows(8).any(|part| part == b"WARNING:") {
            continue;
        }
        let end = line
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or_else(|| panic!("{}", line.escape_ascii()));
        let (path, rest) = (&line[2..end], &line[end + 1..]);
        let mark = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap();
        let number = std::str::from_utf8(&rest[..mark]).unwrap().parse().unwrap();
        files.entry(path.to_vec()).or_default().push((
            number,
            rest[mark] == b':',
            rest[mark + 1..].to_vec(),
        ));
    }
    files
}

fn grep(guest: &mut Guest, wanted: Grep) -> Result<GrepReport, Fault> {
    match guest.call(&Request::Grep(wanted))? {
        Reply::Grepped(found) => Ok(found),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_grep_finds_what_ripgrep_finds() {
    needs!("rg");
    let strategy = (plan(content()), vec(wish(), 5), 1_u32..5);
    check(40, strategy, |guest, (plan, wishes, few)| {
        let tree = Tree::grow(plan);
        for wish in wishes {
            let rg = tree.rg(b"", &wish.words());
            let found = match grep(guest, wish.request(&tree.root)) {
                Ok(found) => found,
                Err(fault) => {
                    prop_assert_eq!(
                        (fault.code, rg.status.code()),
                        (Code::InvalidArgument, Some(2)),
                        "{} {:?}",
                        fault,
                        wish
                    );
                    continue;
                }
            };
            prop_assert_ne!(rg.status.code(), Some(2), "{:?} {:?}", wish, rg);
            let (ours, mut theirs) = (lines_of(&found), lines_of_rg(&rg.stdout));
            theirs.retain(|path, _| !tree.is_binary(path));
            prop_assert_eq!(&ours, &theirs, "{:?}", wish);
            let order: Vec<&[u8]> = found.files.iter().map(|file| &file.path[..]).collect();
            prop_assert!(in_order(&tree, b"", &order), "{:?}", order);

            // The other modes, and parts of the answer, tell the same.
            let matches = |lines: &[LineRecord]| lines.iter().filter(|line| line.1).count() as u64;
            let all: u64 = theirs.values().map(|lines| matches(lines)).sum();
            prop_assert_eq!(
                (found.total_files, found.total_matches),
                (theirs.len() as u64, all),
                "{:?}",
                wish
            );
            for mode in [GrepMode::Files, GrepMode::Count] {
                let other = grep(
                    guest,
                    Grep {
                        mode,
                        ..wish.request(&tree.root)
                    },
                )
                .unwrap();
                let same: Vec<&[u8]> = other.files.iter().map(|file| &file.path[..]).collect();
                prop_assert_eq!(&same, &order);
                prop_assert_eq!(other.total_matches, all);
                for file in &other.files {
                    prop_assert_eq!(file.matches, matches(&theirs[&file.path[..]]), "{:?}", wish);
                }
            }
            let mut pages = BTreeMap::<Vec<u8>, Vec<LineRecord>>::new();
            for offset in (0..all as u32).step_by(*few as usize) {
                let page = Grep {
                    offset,
                    max_hits: *few,
                    before: 0,
                    after: 0,
                    ..wish.request(&tree.root)
                };
                let page = grep(guest, page).unwrap();
                prop_assert_eq!(page.total_matches, all);
                for (path, lines) in lines_of(&page) {
                    pages.entry(path).or_default().extend(lines);
                }
            }
            let whole = theirs.into_iter().map(|(path, lines)| {
                (
                    path,
                    lines.into_iter().filter(|line| line.1).collect::<Vec<_>>(),
                )
            });
            prop_assert_eq!(pages, whole.collect::<BTreeMap<_, _>>(), "{:?}", wish);
        }
        Ok(())
    });
}
