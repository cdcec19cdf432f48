//! Slices: the code of a tool contains what it needs of the bundle, and nothing else.

use crate::{complaints, tools};

#[test]
fn a_slice_has_what_the_tool_needs_and_nothing_else() {
    let extraction = tools(
        "import { createHash } from 'node:crypto';
console.log('never');
const unused = 1;
const TABLE = { a: 1 };
TABLE.b = 2;
let counter = 0;
function helper(x) { counter++; return inner(x) + TABLE.b; }
const inner = (x) => createHash('sha256').update(x).digest('hex');
class Box { #v = 1; get() { return this.#v } }
Box.size = 3;
process.exit(1);",
        "{ t: tool({ inputSchema: z.object({}), async execute(i) { return [helper(i), new Box().get(), fetch] } }) }",
    );
    assert_eq!(complaints(&extraction), "");
    let slice = extraction.bundle.agents[0].tools[0].slice.clone().unwrap();
    assert_eq!(
        slice.code,
        "import { createHash } from \"node:crypto\";
const TABLE = { a: 1 };
TABLE.b = 2;
let counter = 0;
function helper(x) { counter++; return inner(x) + TABLE.b; }
const inner = (x) => createHash('sha256').update(x).digest('hex');
class Box { #v = 1; get() { return this.#v } }
Box.size = 3;
export default Object.values({ async execute(i) { return [helper(i), new Box().get(), fetch] } })[0];
"
    );
    assert_eq!(slice.modules, ["node:crypto"]);
    assert_eq!(slice.globals, ["fetch"]);
    assert_eq!(slice.state, ["counter"]);
    assert!(
        extraction
            .warnings()
            .any(|problem| problem.reason.contains("counter"))
    );
}

#[test]
fn arguments_of_the_function_around_a_tool_are_carried_as_data() {
    let extraction = tools(
        "const make = (prefix, { list }) => tool({ inputSchema: z.object({}), execute: () => prefix + list[0] });",
        "{ t: make('a\"\u{2028}', { list: ['x'] }) }",
    );
    assert_eq!(complaints(&extraction), "");
    let slice = extraction.bundle.agents[0].tools[0].slice.clone().unwrap();
    assert!(
        slice.code.starts_with(
            "const prefix = \"a\\\"\u{2028}\";\nconst list = JSON.parse(\"[\\\"x\\\"]\");\n"
        ),
        "{}",
        slice.code
    );
}

#[test]
fn a_name_is_that_of_its_scope() {
    // Two functions of the same name, in different scopes.
    let extraction = tools(
        "function pick() { return 'outer'; }
const made = (() => { function pick() { return 'inner'; } return tool({ inputSchema: z.object({}), execute: () => pick() }); })();",
        "{ t: made }",
    );
    assert_eq!(complaints(&extraction), "");
    let slice = extraction.bundle.agents[0].tools[0].slice.clone().unwrap();
    assert!(
        slice.code.contains("'inner'") && !slice.code.contains("'outer'"),
        "{}",
        slice.code
    );
}
