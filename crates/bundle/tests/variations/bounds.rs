//! Limits, and repeated names.

use crate::{IMPORTS, complaints, read, with_agent};
use std::fmt::Write as _;

#[test]
fn bounds_end_what_has_no_end() {
    let big = "x".repeat(glovebox_bundle::MAX_SOURCE_BYTES + 1);
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let mut doubled = "const a0 = ['x'];".to_owned();
    for index in 1..60 {
        let _ = write!(doubled, "const a{index} = [...a{0}, ...a{0}];", index - 1);
    }
    let mut shared = "const b0 = { x: 'y' };".to_owned();
    for index in 1..60 {
        let _ = write!(
            shared,
            "const b{index} = {{ l: b{0}, r: b{0} }};",
            index - 1
        );
    }
    let mut grown = "const c0 = 'xxxxxxxxxxxxxxxx';".to_owned();
    for index in 1..60 {
        let _ = write!(grown, "const c{index} = c{0} + c{0};", index - 1);
    }
    for (source, code) in [
        (big, "E_TOO_LARGE"),
        (deep, "E_TOO_DEEP"),
        (
            with_agent(&doubled, "name: 'a', system: a59.join(''), model: 'm'"),
            "E_TOO_DEEP",
        ),
        (
            with_agent(
                &shared,
                "name: 'a', system: 's', model: 'm', tools: { t: tool({ inputSchema: { type: 'object', properties: b59 } }) }",
            ),
            "E_TOO_DEEP",
        ),
        (
            with_agent(&grown, "name: 'a', system: c59, model: 'm'"),
            "E_TOO_LARGE",
        ),
        (
            with_agent(
                &format!("const s = '{}';", "x".repeat(1_000_000)),
                "name: 'a', system: s, model: 'm', extra: s",
            ),
            "E_TOO_LARGE",
        ),
    ] {
        let extraction = read(&source);
        let codes: Vec<&str> = extraction
            .errors()
            .map(|problem| problem.code.as_str())
            .collect();
        assert!(
            codes.contains(&code),
            "{codes:?}: {}",
            complaints(&extraction)
        );
    }
}

#[test]
fn keys_that_repeat_and_names_that_differ_are_told() {
    let source = format!(
        "{IMPORTS}const one = (name) => createAgent({{ name, system: name, model: 'm' }});
export default createLightfast({{ agents: {{ a: one('x'), a: one('y') }} }});"
    );
    let extraction = read(&source);
    assert_eq!(complaints(&extraction), "");
    assert_eq!(extraction.bundle.agents[0].name, "y");
    assert!(
        extraction
            .warnings()
            .any(|problem| problem.reason.contains("declared twice"))
    );
}
