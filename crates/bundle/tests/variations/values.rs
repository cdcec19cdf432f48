//! Forms of values, and values that are known only at run time.

use crate::system;

#[test]
fn texts_are_worked_out() {
    for (before, expression, expected) in [
        ("", "'x'", "x"),
        ("", "`a\\`b`", "a`b"),
        (
            "const N = 3;",
            "`n=${N} ${1 + 2} ${true} ${null}`",
            "n=3 3 true null",
        ),
        ("", "'a' + 'b' + 1 + 2", "ab12"),
        ("", "1 + 2 + 'x'", "3x"),
        ("", "['a', 'b'].join('\\n')", "a\nb"),
        ("", "String.raw`a\\n`", "a\\n"),
        ("", "'  x '.trim().toUpperCase()", "X"),
        ("const c = { p: { q: ['u', 'v'] } };", "c.p.q[1]", "v"),
        ("const c = { p: 'x' };", "c?.p", "x"),
        ("const c = { p: 'x' };", "c['p']", "x"),
        ("let c = 'x';", "c", "x"),
        ("var c; c = 'x';", "c", "x"),
        (
            "const { p = 'd', q: { r } } = { q: { r: 'x' } };",
            "p + r",
            "dx",
        ),
        ("const [, s] = ['a', 'b'];", "s", "b"),
        ("const f = (n) => `hi ${n}`;", "f('you')", "hi you"),
        (
            "function f(a, b = 'd') { const c = a + b; return c; }",
            "f('x')",
            "xd",
        ),
        ("", "true ? 'a' : 'b'", "a"),
        ("", "!1 ? 'a' : 'b'", "b"),
        ("", "false || 'x'", "x"),
        ("", "null ?? 'x'", "x"),
        ("", "void 0 ?? 'x'", "x"),
        ("", "(0, 'x')", "x"),
        (
            "var M = ((M2) => { M2['A'] = 'a'; return M2; })(M || {});",
            "M.A",
            "a",
        ),
        (
            "var M = (e => (e.A = 'a', e.B = 'b', e))(M || {});",
            "M.B",
            "b",
        ),
        (
            "var M; (function (M) { M[M['A'] = 0] = 'A'; })(M || (M = {}));",
            "M[M.A]",
            "A",
        ),
        ("const o = Object.freeze({ a: 'x' });", "o.a", "x"),
        (
            "const o = Object.assign({}, { a: 'x' }, { a: 'y' });",
            "o.a",
            "y",
        ),
        (
            "const o = Object.fromEntries(['k'].map((n) => [n, n + '!']));",
            "o.k",
            "k!",
        ),
        ("const o = JSON.parse('{\"a\": \"x\"}');", "o.a", "x"),
        (
            "const base = { a: 'x' }; const o = { ...base, ...(false), a: 'y' };",
            "o.a",
            "y",
        ),
        (
            "import dedent from 'dedent';",
            "dedent`\n    a\n      b\n  `",
            "a\n  b",
        ),
        ("class P { static text = 'x'; }", "P.text", "x"),
        ("if (!1) { other.x = 1 }", "'x'", "x"),
        ("await fetch('x');", "'x'", "x"),
    ] {
        assert_eq!(
            system(before, expression).as_deref(),
            Ok(expected),
            "{before} {expression}"
        );
    }
}

#[test]
fn what_is_only_known_at_run_time_is_refused() {
    for (before, expression, code) in [
        ("", "process.env.PROMPT", "E_DYNAMIC_VALUE"),
        ("", "Date.now() + ''", "E_DYNAMIC_VALUE"),
        ("", "Math.random() + ''", "E_DYNAMIC_VALUE"),
        ("", "process.env.X ? 'a' : 'b'", "E_CONDITIONAL"),
        ("", "process.env.X ?? 'b'", "E_CONDITIONAL"),
        ("", "process.env.X || 'b'", "E_CONDITIONAL"),
        (
            "import { make } from 'other';",
            "make('x')",
            "E_IMPORT_UNKNOWN",
        ),
        ("const o = { a: 'x' }; o.a = 'y';", "o.a", "E_MUTATED"),
        (
            "const o = { a: 'x' }; const p = o; p.a = 'y';",
            "o.a",
            "E_MUTATED",
        ),
        (
            "const o = { a: 'x' }; Object.assign(o, { a: 'y' });",
            "o.a",
            "E_MUTATED",
        ),
        ("const o = { a: 'x' }; delete o.a;", "o.a", "E_MUTATED"),
        ("const o = ['x']; o.push('y');", "o[0]", "E_MUTATED"),
        (
            "const o = { a: 'x' }; function f(t) { t.a = 'y'; } f(o);",
            "o.a",
            "E_MUTATED",
        ),
        (
            "import { f } from 'other'; const o = { a: 'x' }; f(o);",
            "o.a",
            "E_MUTATED",
        ),
        ("let c = 'x'; c = 'y';", "c", "E_MUTATED"),
        ("let c = 'x'; c += 'y';", "c", "E_MUTATED"),
        ("let c; if (x) c = 'y';", "c", "E_MUTATED"),
        ("const o = { get a() { return 'x'; } };", "o.a", "E_GETTER"),
        ("const o = { __proto__: { a: 'x' } };", "o.a", "E_GETTER"),
        (
            "const p = null; const o = { __proto__: p, a: 'x' };",
            "o.a",
            "E_GETTER",
        ),
        ("const o = { [f()]: 'x' };", "o.a", "E_COMPUTED_KEY"),
        ("const o = { ...process.env };", "o.a", "E_SPREAD_DYNAMIC"),
        (
            "const o = { ...(process.env.X && { a: 'x' }) };",
            "o.a",
            "E_SPREAD_DYNAMIC",
        ),
        ("", "(await import('./x.js')).default", "E_DYNAMIC_VALUE"),
        ("", "require('./x.json').a", "E_IMPORT_NOT_ALLOWED"),
        ("", "require(name).a", "E_IMPORT_NOT_ALLOWED"),
        (
            "import d from './x.json' with { type: 'json' };",
            "d.a",
            "E_IMPORT_NOT_ALLOWED",
        ),
        (
            "function f(a) { if (a) return 'x'; return 'y'; }",
            "f(1)",
            "E_DYNAMIC_VALUE",
        ),
        (
            "async function f() { return 'x'; }",
            "f()",
            "E_DYNAMIC_VALUE",
        ),
        ("class P { text = 'x'; }", "new P().text", "E_DYNAMIC_VALUE"),
        ("const f = () => f();", "f()", "E_TOO_DEEP"),
        ("const c = c2 + 'x', c2 = 'y';", "c", "E_DYNAMIC_VALUE"),
        ("", "'a' + '\\ud800'", "E_DYNAMIC_VALUE"),
        ("", "42", "E_FIELD_TYPE"),
        ("", "undefined", "E_FIELD_TYPE"),
        ("", "['a', 'b']", "E_FIELD_TYPE"),
        ("", "eval('x')", "E_DYNAMIC_VALUE"),
        (
            "const p = new Proxy({ a: 'x' }, {});",
            "p.a",
            "E_DYNAMIC_VALUE",
        ),
    ] {
        let complaint = system(before, expression).unwrap_err();
        assert!(
            complaint.starts_with(&format!("{code} agents.a.system (bundle.js:")),
            "{before} {expression}: {complaint}"
        );
        assert!(complaint.contains("hint: "), "{complaint}");
    }
}
