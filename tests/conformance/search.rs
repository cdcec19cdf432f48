//! Editing in place, and finding files and lines, through the guest.

use crate::Fixture;
use crate::commands::sh;
use glovebox_proto::{
    Case, Code, EditReport, Fault, Glob, GlobReport, Grep, GrepMode, GrepReport, GrepTarget,
    MatchKind, Replacement, Reply, Request, SearchEnd, WriteMode,
};
use glovebox_sandbox::Sandbox;
use serde_bytes::ByteBuf;
use std::time::{Duration, Instant};

fn run(sandbox: &Sandbox, script: &str) {
    let output = sandbox.exec(sh(script)).unwrap();
    assert_eq!(
        output.report.exit,
        glovebox_proto::Exit::Code(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn edit(sandbox: &Sandbox, path: &str, edits: &[(&str, &str)]) -> Result<EditReport, Fault> {
    let replacements = edits
        .iter()
        .map(|(old, new)| Replacement {
            old: ByteBuf::from(*old),
            new: ByteBuf::from(*new),
            all: false,
        })
        .collect();
    match sandbox.call(Request::Edit {
        path: ByteBuf::from(path),
        replacements,
    })? {
        Reply::Edited(edited) => Ok(edited),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn texts_are_replaced_in_place(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    run(
        &sandbox,
        "printf 'one\\ntwo\\nthree\\n' > file; chmod 750 file; ln -s file link",
    );
    let edited = edit(&sandbox, "link", &[("two", "2"), ("three", "3")]).unwrap();
    assert_eq!(edited.made.len(), 2);
    assert!(edited.made.iter().all(|made| made.how == MatchKind::Exact));
    assert_eq!(edited.size, 8);
    assert_eq!(
        String::from_utf8_lossy(&edited.diff),
        "@@ -1,3 +1,3 @@\n one\n-two\n-three\n+2\n+3\n"
    );
    assert_eq!(sandbox.read_file(b"file", 100).unwrap(), b"one\n2\n3\n");
    // The file is still itself: its mode, and the link to it.
    run(
        &sandbox,
        "test -L link && test -x file && ! test -e '*.tmp'",
    );

    let fault = edit(&sandbox, "file", &[("one", "1"), ("four", "4")]).unwrap_err();
    assert_eq!(fault.code, Code::NoMatch);
    assert_eq!(sandbox.read_file(b"file", 100).unwrap(), b"one\n2\n3\n");

    run(
        &sandbox,
        "printf 'x\\nx\\n' > twice; mkfifo fifo; mkdir dir",
    );
    let fault = edit(&sandbox, "twice", &[("x", "y")]).unwrap_err();
    assert_eq!(fault.code, Code::AmbiguousMatch);
    for (path, code) in [
        ("fifo", Code::SpecialFile),
        ("dir", Code::IsDirectory),
        ("/dev/zero", Code::SpecialFile),
        ("missing", Code::NotFound),
    ] {
        let fault = edit(&sandbox, path, &[("x", "y")]).unwrap_err();
        assert_eq!(fault.code, code, "{path}: {fault}");
    }
    let entries = sandbox
        .call(Request::List {
            path: ByteBuf::from("."),
            max_entries: 100,
        })
        .unwrap();
    let Reply::List { entries, .. } = entries else {
        panic!("{entries:?}");
    };
    // Nothing temporary stays.
    assert!(entries.iter().all(|entry| {
        ["file", "link", "twice", "fifo", "dir"].contains(&&*String::from_utf8_lossy(&entry.name))
    }));
}

fn glob(sandbox: &Sandbox, pattern: &str, max_hits: u32) -> Result<GlobReport, Fault> {
    let reply = sandbox.call(Request::Glob(Glob {
        path: ByteBuf::from("tree"),
        pattern: pattern.to_owned(),
        use_ignore: true,
        max_hits,
        deadline_ms: 20_000,
    }))?;
    match reply {
        Reply::Globbed(globbed) => Ok(globbed),
        other => panic!("{other:?}"),
    }
}

const TREE: &str = "mkdir -p tree/src/deep tree/.git tree/target tree/.github && cd tree &&
    echo target > .gitignore && echo 'fn main() {}' > src/main.rs && echo 'fn deep() {}' > src/deep/deep.rs &&
    echo x > target/out.rs && echo x > .git/x.rs && echo 'fn ci() {}' > .github/ci.rs && echo text > notes.txt &&
    printf 'bin\\0fn' > data.bin && mkfifo fifo.rs &&
    touch -d 2001-01-01 src/main.rs && touch -d 2002-01-01 .github/ci.rs && touch -d 2003-01-01 src/deep/deep.rs";

pub(crate) fn files_are_found_by_name_newest_first(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    run(&sandbox, TREE);
    let names = |globbed: &GlobReport| -> Vec<String> {
        globbed
            .hits
            .iter()
            .map(|hit| String::from_utf8_lossy(&hit.path).into_owned())
            .collect()
    };
    let all = glob(&sandbox, "*.rs", 100).unwrap();
    assert_eq!(
        names(&all),
        ["src/deep/deep.rs", ".github/ci.rs", "src/main.rs"]
    );
    assert_eq!((all.total, all.end), (3, SearchEnd::Complete));
    // The newest over all, not over the first found.
    let one = glob(&sandbox, "*.rs", 1).unwrap();
    assert_eq!(
        (names(&one).as_slice(), one.total),
        (&["src/deep/deep.rs".to_owned()][..], 3)
    );
    assert_eq!(
        names(&glob(&sandbox, "src/*.rs", 9).unwrap()),
        ["src/main.rs"]
    );
    assert_eq!(
        names(&glob(&sandbox, "**/deep/*", 9).unwrap()),
        ["src/deep/deep.rs"]
    );
    assert_eq!(
        names(&glob(&sandbox, "*.{txt,md}", 9).unwrap()),
        ["notes.txt"]
    );
    assert!(glob(&sandbox, "*.none", 9).unwrap().hits.is_empty());
    let fault = glob(&sandbox, "a{b", 9).unwrap_err();
    assert_eq!(fault.code, Code::InvalidArgument, "{fault}");
}

fn wanted(pattern: &str) -> Grep {
    Grep {
        target: GrepTarget::Path(ByteBuf::from("tree")),
        pattern: pattern.to_owned(),
        is_literal: false,
        case: Case::Sensitive,
        is_multiline: false,
        globs: Vec::new(),
        types: Vec::new(),
        use_ignore: true,
        mode: GrepMode::Lines,
        before: 0,
        after: 0,
        offset: 0,
        max_hits: 100,
        deadline_ms: 20_000,
    }
}

fn grep(sandbox: &Sandbox, wanted: Grep) -> Result<GrepReport, Fault> {
    match sandbox.call(Request::Grep(wanted))? {
        Reply::Grepped(grepped) => Ok(grepped),
        other => panic!("{other:?}"),
    }
}

/// `path:number:text` of every line.
fn lines(grepped: &GrepReport) -> Vec<String> {
    grepped
        .files
        .iter()
        .flat_map(|file| {
            file.lines.iter().map(|line| {
                format!(
                    "{}{}{}:{}",
                    String::from_utf8_lossy(&file.path),
                    if line.is_match { ':' } else { '-' },
                    line.number,
                    String::from_utf8_lossy(&line.text)
                )
            })
        })
        .collect()
}

pub(crate) fn lines_are_found_in_the_newest_files_first(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    run(&sandbox, TREE);
    let found = grep(&sandbox, wanted("^fn \\w+")).unwrap();
    assert_eq!(
        lines(&found),
        [
            "src/deep/deep.rs:1:fn deep() {}",
            ".github/ci.rs:1:fn ci() {}",
            "src/main.rs:1:fn main() {}"
        ]
    );
    assert_eq!((found.total_files, found.total_matches), (3, 3));
    assert_eq!((found.binary, found.end), (1, SearchEnd::Complete));

    let page = grep(
        &sandbox,
        Grep {
            offset: 1,
            max_hits: 1,
            ..wanted("fn")
        },
    )
    .unwrap();
    assert_eq!(lines(&page), [".github/ci.rs:1:fn ci() {}"]);
    assert_eq!(page.total_matches, 3);

    let typed = Grep {
        types: vec!["txt".to_owned()],
        ..wanted("t")
    };
    assert_eq!(lines(&grep(&sandbox, typed).unwrap()), ["notes.txt:1:text"]);
    let globbed = Grep {
        globs: vec!["*.rs".to_owned(), "!src/**".to_owned()],
        case: Case::Insensitive,
        mode: GrepMode::Files,
        ..wanted("FN")
    };
    let found = grep(&sandbox, globbed).unwrap();
    assert_eq!(found.files.len(), 1);
    assert_eq!(&found.files[0].path[..], b".github/ci.rs");

    run(
        &sandbox,
        "printf 'a\\nb\\nhit\\nc\\nd\\nhit\\n' > tree/ctx.txt",
    );
    let context = Grep {
        before: 1,
        after: 1,
        globs: vec!["ctx.txt".to_owned()],
        ..wanted("hit")
    };
    assert_eq!(
        lines(&grep(&sandbox, context).unwrap()),
        [
            "ctx.txt-2:b",
            "ctx.txt:3:hit",
            "ctx.txt-4:c",
            "ctx.txt-5:d",
            "ctx.txt:6:hit"
        ]
    );
    let several = Grep {
        is_multiline: true,
        ..wanted("c\\nd")
    };
    assert_eq!(
        lines(&grep(&sandbox, several).unwrap()),
        ["ctx.txt:4:c", "ctx.txt:5:d"]
    );
    let literal = Grep {
        is_literal: true,
        ..wanted("main() {")
    };
    assert_eq!(grep(&sandbox, literal).unwrap().total_matches, 1);

    // A pattern that is none, or a type, or a place: an error, never "nothing found".
    for bad in [
        wanted("("),
        Grep {
            types: vec!["nonsense".to_owned()],
            ..wanted("x")
        },
        Grep {
            max_hits: 0,
            ..wanted("x")
        },
    ] {
        let fault = grep(&sandbox, bad).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument, "{fault}");
    }
    let nowhere = Grep {
        target: GrepTarget::Path(ByteBuf::from("nowhere")),
        ..wanted("x")
    };
    assert_eq!(grep(&sandbox, nowhere).unwrap_err().code, Code::NotFound);
    let device = Grep {
        target: GrepTarget::Path(ByteBuf::from("/dev/zero")),
        ..wanted("x")
    };
    assert_eq!(grep(&sandbox, device).unwrap_err().code, Code::SpecialFile);
    let one_file = Grep {
        target: GrepTarget::Path(ByteBuf::from("tree/notes.txt")),
        ..wanted("t")
    };
    assert_eq!(grep(&sandbox, one_file).unwrap().total_matches, 1);
}

pub(crate) fn a_search_ends_in_time_with_what_it_has(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    run(
        &sandbox,
        "mkdir -p tree && cd tree && head -c 100000000 /dev/zero | tr '\\0' 'a' | fold -w 100 > big && ln -s . loop",
    );
    let begin = Instant::now();
    let found = grep(
        &sandbox,
        Grep {
            deadline_ms: 20,
            mode: GrepMode::Count,
            ..wanted("a.*a.*a.*a")
        },
    )
    .unwrap();
    assert_eq!(found.end, SearchEnd::Deadline);
    assert!(begin.elapsed() < Duration::from_secs(5));
    // A line longer than any that is searched is skipped and counted, whatever its size.
    sandbox
        .write_file(b"tree/line", WriteMode::Replace, &vec![b'z'; 40 << 20])
        .unwrap();
    let found = grep(
        &sandbox,
        Grep {
            globs: vec!["line".to_owned()],
            ..wanted("zz")
        },
    )
    .unwrap();
    assert_eq!((found.total_matches, found.unreadable), (0, 1));
    assert!(sandbox.ping().is_ok());
}
