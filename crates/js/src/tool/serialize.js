// Writes a result as JSON text. In: `emit`, which takes the text piece by piece and is false when there was too much,
// and how deep a result may nest. Out: `write`, from a value to the lines that tell what was changed to make it JSON,
// and `refusal`, which knows what `write` throws. A value that JSON would turn into `{}` or leave out (a Map, a
// promise, an error, a function) is refused with its path (`E_RESULT`). Everything used here is taken before the tool's
// code runs, and nothing goes through iterators, so that what a tool does to built-in objects changes nothing.
(emit, maxDepth) => {
  'use strict';
  const MAX_PATH_CHARS = 300;
  const { apply, ownKeys, getOwnPropertyDescriptor } = Reflect;
  const { isArray } = Array;
  const quote = JSON.stringify;
  const { isFinite } = Number;
  const { isView } = ArrayBuffer;
  const bound = (f) => (self, ...args) => apply(f, self, args);
  const wellFormed = bound(String.prototype.toWellFormed);
  const toIso = bound(Date.prototype.toISOString);
  const timeOf = bound(Date.prototype.getTime);
  const textOf = bound(Number.prototype.toString);
  const mapSize = bound(getOwnPropertyDescriptor(Map.prototype, 'size').get);
  const setSize = bound(getOwnPropertyDescriptor(Set.prototype, 'size').get);
  const typedLength = bound(
    getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), 'length').get);
  const Plain = Object;
  const { getPrototypeOf } = Object;
  const { asyncIterator, iterator, toStringTag } = Symbol;
  const isBelow = bound(Object.prototype.isPrototypeOf);
  const promiseProto = Promise.prototype, errorProto = Error.prototype;
  const match = bound(RegExp.prototype.exec);
  const cut = bound(String.prototype.slice);
  const Chain = Map;
  const unbox = [Number.prototype.valueOf, String.prototype.valueOf, Boolean.prototype.valueOf].map(bound);
  const addTo = bound(Map.prototype.set), takeFrom = bound(Map.prototype.delete), depthOf = bound(Map.prototype.get);
  class Refusal {
    #kind;
    #message;
    constructor(kind, message) {
      this.#kind = kind;
      this.#message = message;
    }
    static read(thrown) {
      return typeof thrown === 'object' && thrown !== null && #kind in thrown
        ? [thrown.#kind, thrown.#message]
        : undefined;
    }
  }
  const fail = (kind, message) => { throw new Refusal(kind, message); };
  const put = (text) => { if (!emit(text)) fail('output_limit', 'the result is longer than it may be'); };
  const string = (text) => quote(wellFormed(text));

  // Whether a value is of the kind that only objects of that kind answer this getter for.
  const answers = (f, value) => {
    try { f(value); return true; } catch { return false; }
  };

  const isTyped = (value) => isView(value) && answers(typedLength, value);

  // Names a value that JSON cannot carry, and says what to return instead; undefined for plain data. A name is all that
  // depends on a prototype here: whatever else has one is refused too.
  const describeForeign = (value) => {
    switch (typeof value) {
      case 'function': return 'is a function; return what it gives';
      case 'symbol': return 'is a symbol; return its description';
      case 'bigint': return 'is a BigInt; return `String(value)`, or `Number(value)` if it is small';
    }
    if (isBelow(promiseProto, value)) return 'is a Promise; await it';
    if (isBelow(errorProto, value)) return 'is an Error; throw it, or return its message';
    if (answers(mapSize, value)) return 'is a Map; return `Object.fromEntries(map)` or `[...map]`';
    if (answers(setSize, value)) return 'is a Set; return `[...set]`';
    const tag = value[toStringTag];
    if (tag === 'AsyncGenerator') return 'is an async generator; collect its values with `for await`';
    if (tag === 'Generator') return 'is a generator; return `[...generator]`';
    if (typeof value[asyncIterator] === 'function')
      return 'is an async iterable; collect its values with `for await`';
    // JSON writes a typed array as an object with its indices.
    if (isTyped(value)) return undefined;
    if (typeof value[iterator] === 'function')
      return typeof value.next === 'function'
        ? 'is an iterator; return `[...iterator]`' : 'is an iterable; return `[...iterable]`';
    const proto = getPrototypeOf(value);
    // The prototype of plain objects has none itself, that of another realm neither.
    if (proto === null || getPrototypeOf(proto) === null) return undefined;
    const made = proto.constructor;
    if (made === Plain) return undefined;
    const name = typeof made === 'function' && typeof made.name === 'string' ? cut(made.name, 0, 100) : '';
    return `is an instance of ${name || 'a class'} without \`toJSON\`; return a plain object`;
  };

  const write = (root) => {
    let numbers = 0;
    // Objects on the way to the value that is written, with their depth; and the keys of that way. Without a prototype:
    // a tool may have put setters on those of lists and objects.
    const above = new Chain();
    const trail = { __proto__: null };
    const pathTo = (depth) => {
      let path = 'result';
      for (let i = 0; i < depth; i++) {
        const key = trail[i];
        if (typeof key === 'number') path += `[${textOf(key)}]`;
        else if (match(/^[A-Za-z_$][\w$]*$/, key) !== null) path += `.${key}`;
        else path += `[${string(key)}]`;
        if (path.length > MAX_PATH_CHARS) return `${cut(path, 0, MAX_PATH_CHARS)}...`;
      }
      return path;
    };
    const refuse = (depth, reason) => fail('not_json', `E_RESULT: ${pathTo(depth)} ${reason}`);

    // The value that stands for this one, as JSON has it.
    const convert = (value, key) => {
      if (value !== null && (typeof value === 'object' || typeof value === 'function' || typeof value === 'bigint')) {
        const toJSON = value.toJSON;
        // A date is written as a date, whatever was done to its prototype.
        if (typeof toJSON === 'function' && !(typeof value === 'object' && answers(timeOf, value)))
          return apply(toJSON, value, [typeof key === 'number' ? textOf(key) : key]);
      }
      return value;
    };

    const step = (value, depth) => {
      switch (typeof value) {
        case 'string': return put(string(value));
        case 'boolean': return put(value ? 'true' : 'false');
        case 'number':
          if (isFinite(value)) return put(value === 0 ? '0' : textOf(value));
          numbers++;
          return put('null');
        case 'undefined': return put('null');
        case 'function': case 'symbol': case 'bigint': return refuse(depth, describeForeign(value));
      }
      if (value === null) return put('null');
      const first = depthOf(above, value);
      if (first !== undefined) refuse(depth, `is ${pathTo(first)} again, a cycle; leave one of them out`);
      if (depth >= maxDepth) fail('not_json', `E_RESULT: the result nests deeper than ${maxDepth} levels`);
      if (answers(timeOf, value)) {
        const time = timeOf(value);
        return put(time === time ? `"${toIso(value)}"` : 'null');
      }
      for (let i = 0; i < unbox.length; i++)
        if (answers(unbox[i], value)) return step(unbox[i](value), depth);
      addTo(above, value, depth);
      if (isArray(value)) {
        put('[');
        const { length } = value;
        for (let i = 0; i < length; i++) {
          if (i > 0) put(',');
          trail[depth] = i;
          step(convert(value[i], i), depth + 1);
        }
        put(']');
      } else {
        const foreign = describeForeign(value);
        if (foreign !== undefined) refuse(depth, foreign);
        put('{');
        let isFirst = true;
        const keys = ownKeys(value);
        const { length } = keys;
        for (let i = 0; i < length; i++) {
          const key = keys[i];
          if (typeof key !== 'string') continue;
          const own = getOwnPropertyDescriptor(value, key);
          if (own === undefined || !own.enumerable) continue;
          const item = convert(value[key], key);
          // As in JSON.stringify: what has no value is not there.
          if (item === undefined) continue;
          if (!isFirst) put(',');
          isFirst = false;
          put(`${string(key)}:`);
          trail[depth] = key;
          step(item, depth + 1);
        }
        put('}');
      }
      takeFrom(above, value);
    };

    step(convert(root, ''), 0);
    return numbers > 0 ? `${textOf(numbers)} NaN or infinite number written as null` : '';
  };
  return { write, refusal: Refusal.read };
}
