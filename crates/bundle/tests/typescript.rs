//! TypeScript: types in a configuration are ignored, tools run without them, and other syntax is
//! refused.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

use glovebox_bundle::{Extraction, Language, extract};

/// Extracts a file whose only agent has the tool `t`.
fn with_tool(before: &str, execute: &str) -> Extraction {
    let source = format!(
        "import {{ createLightfast, createAgent }} from 'lightfast';
import {{ tool }} from 'ai';
{before}
const t = tool({{ inputSchema: {{ type: 'object' }}, execute: {execute} }});
export default createLightfast({{ agents: {{ a: createAgent({{ name: 'a', system: 's', model: 'm', tools: {{ t }} }}) }} }});"
    );
    extract(&source, Language::TypeScript).unwrap()
}

fn complaints(extraction: &Extraction) -> String {
    let errors = extraction.errors().map(|problem| problem.render("a.ts"));
    errors.collect()
}

/// Returns the code of the tool, with white space reduced to single spaces.
fn code(before: &str, execute: &str) -> String {
    let extraction = with_tool(before, execute);
    assert_eq!(complaints(&extraction), "", "{before} {execute}");
    let slice = extraction.bundle.agents[0].tools[0].slice.clone().unwrap();
    let words: Vec<&str> = slice.code.split_whitespace().collect();
    words.join(" ")
}

#[test]
fn configurations_are_read_over_types() {
    let source = "import { createLightfast, createAgent } from 'lightfast';
import type { Agent } from 'lightfast';
enum Mode { A = 'a', B }
const agents = { a: createAgent({ name: 'a', system: `m ${Mode.A}` as string, model: 'm' satisfies string }) } as const;
export default createLightfast({ agents: agents! });";
    let extraction = extract(source, Language::TypeScript).unwrap();
    assert_eq!(complaints(&extraction), "");
    assert_eq!(extraction.bundle.agents[0].system, "m a");
}

#[test]
fn types_are_taken_out_of_functions() {
    for (execute, expected) in [
        (
            "async (i: { x: number }): Promise<number> => i.x",
            "async (i ) => i.x",
        ),
        ("(i?: string, ...r: number[]) => r", "(i , ...r ) => r"),
        ("async <T,>(i: T) => i", "async (i ) => i"),
        // A line end after `async` or before the arrow would be a syntax error.
        (
            "async <\n  T\n>(i: T): Promise<\n  T\n> => i",
            "async (i ) => i",
        ),
        ("(i): i is string => !!i", "(i) => !!i"),
        (
            "function (this: void, i: string) { return i }",
            "function ( i ) { return i }",
        ),
        (
            "(i) => (i as any).x!.y satisfies string",
            "(i) => (i ).x .y",
        ),
        (
            "(i) => new Map<string, number>([[i, 1]]).get(i)!",
            "(i) => new Map ([[i, 1]]).get(i)",
        ),
        (
            "(i) => { try { return [i] as const } catch (e: unknown) { throw e } }",
            "(i) => { try { return [i] ; } catch (e ) { throw e } }",
        ),
        (
            "(i) => { let a!: number; interface P { x: 1 } type Q = P; declare const b: Q; a = i; return a }",
            "(i) => { let a ; ; ; ; ; a = i; return a }",
        ),
        (
            "(i) => { for (const x of i as any[]) { if (x) return x as number } }",
            "(i) => { for (const x of i ) { if (x) return x ; } }",
        ),
        // Without its type, each of these statements would continue in the next line.
        (
            "(i) => { let a = i as any\n;[a]\nconst b: any = a!\nlet c: number\n[1]\nreturn c }",
            "(i) => { let a = i ;[a] const b = a; let c ; [1] return c }",
        ),
    ] {
        assert_eq!(
            code("", execute),
            format!("export default ({expected});"),
            "{execute}"
        );
    }
}

#[test]
fn types_are_taken_out_of_what_a_tool_needs() {
    for (before, expected) in [
        (
            "function use(i: string): string;\nfunction use(i: number): number;\nfunction use(i: any) { return i }",
            "; ; function use(i ) { return i }",
        ),
        (
            "abstract class Base<T> { abstract run(): T; }
class use extends Base<string> implements Iterable<string>, Disposable {
  private readonly a?: number = 1
  private [b]: string
  protected static c: number
  declare d: string
  [key: string]: unknown
  constructor(e?: string);
  constructor(e?: any) { super() }
  public override async *run<T>(this: use): AsyncGenerator<T> { yield* [] as T[] }
  get f(): number { return this.a! }
}
const b = 'b';",
            "class Base { ; } class use extends Base { a = 1 ; [b] ; static c ; ; ; ; \
             constructor(e ) { super() } ; async *run ( ) { yield* [] ; } get f() { return this.a; } } const b = 'b';",
        ),
        (
            "type use = string;\nconst use = ((i) => i) as (i: string) => string;",
            "const use = ((i) => i) ;",
        ),
        (
            "enum use { A = 'x', B = 2, C }",
            "const use = JSON.parse(\"{\\\"A\\\":\\\"x\\\",\\\"2\\\":\\\"B\\\",\\\"B\\\":2,\\\"3\\\":\\\"C\\\",\\\"C\\\":3}\");",
        ),
    ] {
        let got = code(before, "(i) => use");
        assert_eq!(got, format!("{expected} export default ((i) => use);"));
    }
}

#[test]
fn every_other_byte_stays_where_it_was() {
    let before = "function use(a: Map<\n  string, // ü\n  number\n>, b = 'ß') {\n  return a!;\n}";
    let extraction = with_tool(before, "(i) => use(i)");
    let slice = extraction.bundle.agents[0].tools[0].slice.clone().unwrap();
    let lines: Vec<&str> = slice.code.lines().collect();
    assert_eq!(lines[4], "  return a ;");
    let with_types = before.lines().nth(3).unwrap();
    assert_eq!(lines[3].find("ß"), with_types.find("ß"));
}

#[test]
fn what_is_more_than_types_is_refused_where_a_tool_needs_it() {
    for (before, execute, what) in [
        (
            "namespace use { export const x = 1 }",
            "() => use.x",
            "a namespace",
        ),
        (
            "class use { constructor(private x: string) {} }",
            "() => new use('')",
            "a parameter that declares",
        ),
        (
            "class use { @log() run() {} }\nfunction log() { return () => {} }",
            "() => new use()",
            "a decorator",
        ),
        (
            "",
            "(i) => { enum E { A } return E.A }",
            "an enum inside a function",
        ),
        ("", "(i) => <string>i", "`<Type>value`"),
        (
            "enum use { A = 1 }\nenum use { B = 2 }",
            "() => use.A",
            "several declarations",
        ),
        ("import use = require('fs');", "() => use", "`import ... =`"),
    ] {
        let extraction = with_tool(before, execute);
        let said = complaints(&extraction);
        assert!(
            said.starts_with("E_TYPESCRIPT agents.a.tools.t.execute (a.ts:")
                && said.contains(what)
                && said.contains("hint: "),
            "{before} {execute}: {said}"
        );
        // Syntax that the tool does not use is accepted.
        assert_eq!(complaints(&with_tool(before, "() => 1")), "", "{before}");
    }
}
