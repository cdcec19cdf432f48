// Writes a result as JSON text. In: `emit`, which takes the text piece by piece and is false when there was too much,
// and how deep a result may nest. Out: `write`, from a value to the lines that tell what was changed to make it JSON,
// and `refusal`, which knows what `write` throws. Everything used here is taken before the tool's code runs, and nothing
// goes through iterators, so that what a tool does to built-in objects changes nothing.
(emit, maxDepth) => {
  'use strict';
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
  const bigText = bound(BigInt.prototype.toString);
  const getter = (proto, name) => bound(getOwnPropertyDescriptor(proto, name).get);
  const mapSize = getter(Map.prototype, 'size');
  const setSize = getter(Set.prototype, 'size');
  const forEachOfMap = bound(Map.prototype.forEach);
  const forEachOfSet = bound(Set.prototype.forEach);
  const typedLength = getter(Object.getPrototypeOf(Uint8Array.prototype), 'length');
  const Chain = Set;
  const unbox = [Number.prototype.valueOf, String.prototype.valueOf, Boolean.prototype.valueOf].map(bound);
  const addTo = bound(Set.prototype.add), takeFrom = bound(Set.prototype.delete), isIn = bound(Set.prototype.has);
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

  const write = (root) => {
    let warnings = '';
    let bigints = 0, numbers = 0, maps = 0, sets = 0, views = 0, functions = 0;
    const above = new Chain();

    const step = (value, path, depth) => {
      if (value !== null && (typeof value === 'object' || typeof value === 'function' || typeof value === 'bigint')) {
        const toJSON = value.toJSON;
        // A date is written as a date, whatever was done to its prototype.
        if (typeof toJSON === 'function' && !(typeof value === 'object' && answers(timeOf, value)))
          value = apply(toJSON, value, [path]);
      }
      switch (typeof value) {
        case 'string': return put(string(value));
        case 'boolean': return put(value ? 'true' : 'false');
        case 'number':
          if (isFinite(value)) return put(value === 0 ? '0' : textOf(value));
          numbers++;
          return put('null');
        case 'bigint':
          bigints++;
          return put(`"${bigText(value)}"`);
        case 'undefined': return put('null');
        case 'function': case 'symbol':
          functions++;
          return put('null');
      }
      if (value === null) return put('null');
      if (isIn(above, value)) fail('not_json', 'the result refers to itself');
      if (depth >= maxDepth) fail('not_json', `the result nests deeper than ${maxDepth} levels`);
      if (answers(timeOf, value)) {
        const time = timeOf(value);
        return put(time === time ? `"${toIso(value)}"` : 'null');
      }
      for (let i = 0; i < unbox.length; i++)
        if (answers(unbox[i], value)) return step(unbox[i](value), path, depth);
      addTo(above, value);
      if (isArray(value)) {
        put('[');
        const { length } = value;
        for (let i = 0; i < length; i++) {
          if (i > 0) put(',');
          step(value[i], path, depth + 1);
        }
        put(']');
      } else if (answers(mapSize, value)) {
        maps++;
        let isNamed = true;
        forEachOfMap(value, (_, key) => { isNamed = isNamed && typeof key === 'string'; });
        let isFirst = true;
        put(isNamed ? '{' : '[');
        forEachOfMap(value, (item, key) => {
          if (!isFirst) put(',');
          isFirst = false;
          if (isNamed) {
            put(`${string(key)}:`);
            step(item, path, depth + 1);
          } else {
            put('[');
            step(key, path, depth + 2);
            put(',');
            step(item, path, depth + 2);
            put(']');
          }
        });
        put(isNamed ? '}' : ']');
      } else if (answers(setSize, value)) {
        sets++;
        let isFirst = true;
        put('[');
        forEachOfSet(value, (item) => {
          if (!isFirst) put(',');
          isFirst = false;
          step(item, path, depth + 1);
        });
        put(']');
      } else if (isView(value) && answers(typedLength, value)) {
        views++;
        put('[');
        const length = typedLength(value);
        for (let i = 0; i < length; i++) {
          if (i > 0) put(',');
          step(value[i], path, depth + 1);
        }
        put(']');
      } else {
        put('{');
        let isFirst = true;
        const keys = ownKeys(value);
        const { length } = keys;
        for (let i = 0; i < length; i++) {
          const key = keys[i];
          if (typeof key !== 'string') continue;
          const own = getOwnPropertyDescriptor(value, key);
          if (own === undefined || !own.enumerable) continue;
          const item = value[key];
          // As in JSON.stringify: what has no value is not there.
          if (item === undefined || typeof item === 'function' || typeof item === 'symbol') {
            if (item !== undefined) functions++;
            continue;
          }
          if (!isFirst) put(',');
          isFirst = false;
          put(`${string(key)}:`);
          step(item, key, depth + 1);
        }
        put('}');
      }
      takeFrom(above, value);
    };

    step(root, '', 0);
    const warn = (count, what) => { if (count > 0) warnings += `${warnings && '\n'}${count} ${what}`; };
    warn(bigints, 'BigInt written as text');
    warn(numbers, 'NaN or infinite number written as null');
    warn(maps, 'Map written as an object, or as a list of pairs where a key is no text');
    warn(sets, 'Set written as a list');
    warn(views, 'typed array written as a list of numbers');
    warn(functions, 'function or symbol left out');
    return warnings;
  };
  return { write, refusal: Refusal.read };
}
