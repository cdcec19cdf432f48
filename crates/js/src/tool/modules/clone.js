// structuredClone.
() => {
  'use strict';
  const refuse = (what) => {
    const error = new Error(`${what} could not be cloned`);
    error.name = 'DataCloneError';
    throw error;
  };
  const structuredClone = (root, { transfer = [] } = {}) => {
    if (transfer.length > 0) refuse('a transferred object');
    const seen = new Map();
    const copy = (value) => {
      if (typeof value === 'function' || typeof value === 'symbol') refuse(String(value).slice(0, 100));
      if (typeof value !== 'object' || value === null) return value;
      if (seen.has(value)) return seen.get(value);
      const keep = (made) => { seen.set(value, made); return made; };
      if (value instanceof Date) return keep(new Date(value.getTime()));
      if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
      if (value instanceof Boolean || value instanceof Number || value instanceof String) return keep(Object(value.valueOf()));
      if (value instanceof ArrayBuffer) return keep(value.slice(0));
      if (ArrayBuffer.isView(value)) {
        const buffer = copy(value.buffer);
        const Kind = value instanceof DataView ? DataView : globalThis[value[Symbol.toStringTag]];
        return keep(new Kind(buffer, value.byteOffset, value instanceof DataView ? value.byteLength : value.length));
      }
      if (value instanceof Map) {
        const made = keep(new Map());
        for (const [key, item] of [...value]) made.set(copy(key), copy(item));
        return made;
      }
      if (value instanceof Set) {
        const made = keep(new Set());
        for (const item of [...value]) made.add(copy(item));
        return made;
      }
      if (value instanceof Error) {
        const Kind = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError }[value.name] ?? Error;
        const made = keep(new Kind(value.message));
        made.stack = value.stack;
        if ('cause' in value) made.cause = copy(value.cause);
        return made;
      }
      if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet || value instanceof WeakRef)
        refuse(Object.prototype.toString.call(value));
      const made = keep(Array.isArray(value) ? new Array(value.length) : {});
      for (const key of Object.keys(value))
        Object.defineProperty(made, key, { value: copy(value[key]), writable: true, configurable: true, enumerable: true });
      return made;
    };
    return copy(root);
  };
  return { structuredClone };
}
