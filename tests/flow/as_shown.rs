//! What Read shows can be worked with as it is shown: a job's output is searched by the same name and
//! with the same line numbers, and the text of a notebook's cell is edited as text.

use crate::tool_calls::call;
use serde_json::{Value, json};
use std::fs;
use testkit::Person;

fn text(person: &Person, tool: &str, arguments: &Value) -> String {
    let (answer, code) = call(person, tool, arguments);
    assert_eq!(code, 0, "{answer}");
    answer["data"]["text"].as_str().unwrap().to_owned()
}

fn refused(person: &Person, tool: &str, arguments: &Value) -> String {
    let (answer, code) = call(person, tool, arguments);
    assert_ne!(code, 0, "{answer}");
    let error = &answer["error"];
    let words = ["message", "remedy"].map(|key| error[key].as_str().unwrap_or_default());
    words.join("\n")
}

/// The number of the first line that Grep found.
fn first_number(found: &str) -> u64 {
    found
        .lines()
        .nth(1)
        .and_then(|line| line.trim().split(':').next())
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("no line in {found}"))
}

#[test]
fn grep_finds_lines_in_what_a_job_wrote() {
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        // What comes through two pipes at once may be kept in either order.
        let script = r"printf 'one\ntwo \000 here\n'; sleep 0.2; echo bad >&2; sleep 0.2; seq 50000 | sed 's/$/ filler/'; echo end";
        let _ = person.script("exec box", script).run().expect_code(0);
        let found = text(
            person,
            "Grep",
            &json!({ "pattern": "^(two|bad|77 filler|end)", "path": "job:1" }),
        );
        insta::assert_snapshot!(found, @r"
        job:1
             2: two \x00 here
             3: bad
          --
            80: 77 filler
          --
         50004: end
        ");
        let read = text(
            person,
            "Read",
            &json!({ "path": "job:1", "offset": 80, "limit": 1 }),
        );
        assert!(read.starts_with("    80\t77 filler\n"), "{read}");
        let count = text(
            person,
            "Grep",
            &json!({ "pattern": "filler", "path": "job:1", "mode": "count" }),
        );
        assert_eq!(count, "job:1: 50000\n");
        let none = refused(person, "Grep", &json!({ "pattern": "x", "path": "job:99" }));
        insta::assert_snapshot!(none, @"
        there is no job 99
        finished jobs are forgotten after a while; list the jobs to see which are known
        ");
        let word = refused(
            person,
            "Grep",
            &json!({ "pattern": "x", "path": "job:one" }),
        );
        insta::assert_snapshot!(word, @"
        `job:one` names no job
        a job's output is `job:` and its number; a file of that name is `./job:...`
        ");
        let typed = refused(
            person,
            "Grep",
            &json!({ "pattern": "x", "path": "job:1", "type": "rust" }),
        );
        insta::assert_snapshot!(typed, @"
        `glob` and `type` choose files, and the output of a job has none
        leave them out
        ");
        let _ = person.line("kill box").run().expect_code(0);
    });
}

#[test]
fn a_log_without_its_middle_says_so_wherever_it_is_read() {
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        // About 21 MB, of which some 8 MB are kept from the beginning and 64 KiB from the end.
        let script = "seq 3000000";
        let _ = person.script("exec box", script).run().expect_code(0);
        let gap = text(
            person,
            "Grep",
            &json!({ "pattern": "bytes are not kept any more", "path": "job:1" }),
        );
        let number = first_number(&gap);
        let end = text(
            person,
            "Grep",
            &json!({ "pattern": "^3000000$", "path": "job:1" }),
        );
        let last = first_number(&end);
        assert!(number < last && last < 3_000_000, "{number} {last}");
        let read = text(
            person,
            "Read",
            &json!({ "path": "job:1", "offset": last, "limit": 10 }),
        );
        assert!(read.contains(&format!("{last}\t3000000\n")), "{read}");
        assert!(
            read.contains(&format!("[line {number} stands for ")),
            "{read}"
        );
        let beyond = text(
            person,
            "Read",
            &json!({ "path": "job:1", "offset": 2_500_000 }),
        );
        assert!(
            beyond.contains(&format!("[the file ends at line {last}]"))
                && beyond.contains(&format!("[line {number} stands for ")),
            "{beyond}"
        );
        let _ = person.line("kill box").run().expect_code(0);
    });
}

#[test]
fn a_cell_of_a_notebook_is_edited_as_it_is_read() {
    const NOTEBOOK: &str = "{\n \"cells\": [\n  {\n   \"cell_type\": \"code\",\n   \"source\": [\n    \"import os\\n\",\n    \
        \"print(\\\"one\\\")\"\n   ],\n   \"outputs\": [{\"text\": [\"one\\n\"]}]\n  }\n ],\n \"nbformat\": 4\n}\n";
    Person::each(|person| {
        person.write("project/work.ipynb", NOTEBOOK);
        let _ = person.line("start -q box").run().expect_code(0);
        let read = text(person, "Read", &json!({ "path": "work.ipynb" }));
        insta::assert_snapshot!(read, @r#"
        1	# --- cell 1 (code) ---
        2	import os
        3	print("one")
        4	# output:
        5	one
        "#);
        let _ = text(
            person,
            "Edit",
            &json!({ "path": "work.ipynb", "old": "print(\"one\")\n", "new": "x = \"two\"\nprint(x)\n" }),
        );
        let read = text(person, "Read", &json!({ "path": "work.ipynb" }));
        insta::assert_snapshot!(read, @r#"
        1	# --- cell 1 (code) ---
        2	import os
        3	x = "two"
        4	print(x)
        5	# output:
        6	one
        "#);
        let shown = refused(
            person,
            "Edit",
            &json!({ "path": "work.ipynb", "edits": [
                { "old": "import os", "new": "import sys" },
                { "old": "# --- cell 1 (code) ---", "new": "#" },
            ] }),
        );
        insta::assert_snapshot!(shown, @"
        of these old texts, only some stand in the source of one of the notebook's cells
        an old text is part of the source of one cell; outputs and the `# --- cell` lines that are shown with it are not text that can be edited. Edit the JSON of the file in an edit of its own
        ");
        let _ = person.line("pull box").run().expect_code(0);
        let file = fs::read_to_string(person.project().join("work.ipynb")).unwrap();
        let expected = NOTEBOOK.replace(
            "    \"print(\\\"one\\\")\"\n",
            "    \"x = \\\"two\\\"\\n\",\n    \"print(x)\"\n",
        );
        assert_eq!(file, expected);
        let _ = person.line("kill box").run().expect_code(0);
    });
}
