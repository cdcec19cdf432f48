//! Messages about problems, all of which are reported at once.

use crate::{complaints, read, with_agent};

#[test]
fn an_error_says_what_where_and_what_to_write() {
    let source = with_agent(
        "",
        "name: 'a', system: 's',\n  model: process.env.PROD ? gateway('x') : gateway('y')",
    );
    let extraction = read(&source);
    assert_eq!(
        complaints(&extraction),
        "E_CONDITIONAL agents.a.model (bundle.js:9:10): the value depends on `process.env.PROD`, which is only known when the \
         bundle runs\n   |\n 9 |   model: process.env.PROD ? gateway('x') : gateway('y') });\n   |          \
         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n   hint: Write one value, or declare two agents or tools.\n\n"
    );
}

#[test]
fn all_errors_come_at_once() {
    let source = with_agent(
        "const o = { a: 'x' }; o.a = 'y';",
        "name: 7, system: o.a, model: process.env.M, tools: { t: tool({ inputSchema: 1, execute: 2 }) }",
    );
    let extraction = read(&source);
    let codes: Vec<&str> = extraction
        .errors()
        .map(|problem| problem.code.as_str())
        .collect();
    assert_eq!(
        codes,
        [
            "E_MUTATED",
            "E_FIELD_TYPE",
            "E_DYNAMIC_VALUE",
            "E_SCHEMA_UNRECOGNISED",
            "E_TOOL_NOT_FUNCTION"
        ],
        "{}",
        complaints(&extraction)
    );
    assert_eq!(extraction.bundle.agents, []);
}
