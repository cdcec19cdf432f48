//! Results that JSON cannot carry, with the words in which a call names them.

/// An expression, and the beginning of the message after the code.
pub(crate) const UNCARRIED: &[(&str, &str)] = &[
    (
        "(function* () { yield 1; })()",
        "result is a generator; return",
    ),
    ("({ a: (function* () {})() })", "result.a is a generator"),
    ("[1].values()", "result is an iterator"),
    ("new Map().entries()", "result is an iterator"),
    (
        "({ [Symbol.iterator]: () => [].values() })",
        "result is an iterable",
    ),
    (
        "({ a: (async function* () {})() })",
        "result.a is an async generator",
    ),
    (
        "({ [Symbol.asyncIterator]: () => 1 })",
        "result is an async iterable",
    ),
    (
        "({ items: [1, 2, Promise.resolve(3)] })",
        "result.items[2] is a Promise; await it",
    ),
    ("[new TypeError('x')]", "result[0] is an Error; throw it"),
    ("new Error('x')", "result is an Error"),
    ("({ f() {} })", "result.f is a function"),
    ("() => 1", "result is a function"),
    ("[Symbol('x')]", "result[0] is a symbol"),
    ("({ 'a b': 12n })", "result[\"a b\"] is a BigInt"),
    ("12n", "result is a BigInt"),
    ("new BigInt64Array(1)", "result[\"0\"] is a BigInt"),
    ("({ m: new Map([['a', 1]]) })", "result.m is a Map"),
    ("new Set([1])", "result is a Set"),
    ("new WeakMap()", "result is an instance of WeakMap"),
    (
        "new (class Point { x = 1 })()",
        "result is an instance of Point without `toJSON`",
    ),
    ("/x/", "result is an instance of RegExp"),
    ("new ArrayBuffer(1)", "result is an instance of ArrayBuffer"),
    (
        "(() => { const a = { b: [] }; a.b.push(a); return { a }; })()",
        "result.a.b[0] is result.a again, a cycle",
    ),
    ("({ toJSON: () => [new Set()] })", "result[0] is a Set"),
    (
        "(() => { Array.prototype[Symbol.iterator] = null; Map.prototype.get = () => 1; \
          return [new Map()]; })()",
        "result[0] is a Map",
    ),
];
