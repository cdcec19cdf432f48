// `node:util`: the part that tools use.
(host, need) => {
  'use strict';
  const MAX_CHARS = 32768, MAX_ITEMS = 100;
  const tagOf = (value) => Object.prototype.toString.call(value).slice(8, -1);
  const answers = (f, value) => {
    try { Reflect.apply(f, value, []); return true; } catch { return false; }
  };
  const getter = (proto, name) => Object.getOwnPropertyDescriptor(proto, name).get;
  const typedTag = getter(Object.getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag);
  const is = (tag) => (value) => typeof value === 'object' && value !== null && tagOf(value) === tag;
  const types = {
    isDate: (value) => answers(Date.prototype.getTime, value),
    isRegExp: (value) => value instanceof RegExp,
    isMap: (value) => answers(getter(Map.prototype, 'size'), value),
    isSet: (value) => answers(getter(Set.prototype, 'size'), value),
    isWeakMap: is('WeakMap'),
    isWeakSet: is('WeakSet'),
    isPromise: (value) => value instanceof Promise,
    isNativeError: (value) => value instanceof Error,
    isAsyncFunction: (value) => typeof value === 'function' && tagOf(value) === 'AsyncFunction',
    isGeneratorFunction: (value) => typeof value === 'function' && tagOf(value).endsWith('GeneratorFunction'),
    isGeneratorObject: is('Generator'),
    isArrayBuffer: (value) => value instanceof ArrayBuffer,
    isAnyArrayBuffer: (value) => value instanceof ArrayBuffer || value instanceof SharedArrayBuffer,
    isSharedArrayBuffer: (value) => value instanceof SharedArrayBuffer,
    isArrayBufferView: ArrayBuffer.isView,
    isDataView: (value) => value instanceof DataView,
    isTypedArray: (value) => Reflect.apply(typedTag, value, []) !== undefined,
    isUint8Array: (value) => Reflect.apply(typedTag, value, []) === 'Uint8Array',
    isBoxedPrimitive: (value) => typeof value === 'object' && value !== null && typeof value.valueOf() !== 'object',
    isNumberObject: is('Number'),
    isStringObject: is('String'),
    isBooleanObject: is('Boolean'),
    // A proxy cannot be told from what it stands for: nothing here has the means.
    isProxy: () => false,
  };

  const quote = (text) => {
    const mark = !text.includes("'") ? "'" : !text.includes('"') ? '"' : !text.includes('`') ? '`' : "'";
    const inner = JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"');
    return mark + (mark === "'" ? inner.replaceAll("'", "\\'") : mark === '"' ? inner.replaceAll('"', '\\"') : inner) + mark;
  };
  const inspect = (root, options = {}) => {
    const given = typeof options === 'object' && options !== null ? options : {};
    const depth = given.depth === null ? Infinity : given.depth ?? 2;
    const width = given.breakLength ?? 80;
    const maxItems = given.maxArrayLength === null ? Infinity : given.maxArrayLength ?? MAX_ITEMS;
    let left = MAX_CHARS;
    const step = (value, level, above) => {
      const text = show(value, level, above);
      left -= text.length;
      return text;
    };
    const show = (value, level, above) => {
      if (left <= 0) return '...';
      switch (typeof value) {
        case 'string': return quote(value.length > 10000 ? `${value.slice(0, 10000)}... ${value.length - 10000} more characters` : value);
        case 'bigint': return `${value}n`;
        case 'symbol': return value.toString();
        case 'number': return Object.is(value, -0) ? '-0' : String(value);
        case 'undefined': case 'boolean': return String(value);
      }
      if (value === null) return 'null';
      if (above.includes(value)) return '[Circular *1]';
      const name = value.constructor?.name ?? '';
      if (typeof value === 'function') {
        const kind = /^class\b/.test(Function.prototype.toString.call(value)) ? 'class' : tagOf(value);
        return `[${kind}${value.name ? `${kind === 'class' ? ' ' : ': '}${value.name}` : ' (anonymous)'}]`;
      }
      if (types.isNativeError(value)) {
        const stack = String(value.stack ?? '').split('\n').filter((line) => line.includes('tool.js:')).join('\n');
        return `${value}${stack ? `\n${stack}` : ''}`;
      }
      if (types.isDate(value)) return Number.isNaN(value.getTime()) ? 'Invalid Date' : value.toISOString();
      if (types.isRegExp(value)) return String(value);
      if (types.isPromise(value)) return 'Promise { ? }';
      const isList = Array.isArray(value);
      const isTyped = types.isTypedArray(value);
      if (level > depth) return `[${isList ? 'Array' : name || 'Object'}]`;
      const path = [...above, value];
      const items = [];
      let more = 0;
      const add = (text) => { if (items.length < maxItems && left > 0) items.push(text()); else more++; };
      const keyText = (key) => typeof key === 'symbol' ? `[${key.toString()}]` : /^[A-Za-z_$][\w$]*$/.test(key) ? key : quote(key);
      let [label, open, close] = [name && name !== 'Object' && name !== 'Array' ? `${name} ` : '', '{', '}'];
      if (Object.getPrototypeOf(value) === null) label = '[Object: null prototype] ';
      if (isList || isTyped) {
        [open, close] = ['[', ']'];
        if (isTyped) label = `${name}(${value.length}) `;
        const shown = Math.min(value.length, maxItems);
        for (let i = 0; i < shown && left > 0; i++) add(() => (i in value ? step(value[i], level + 1, path) : '<1 empty item>'));
        more = value.length - items.length;
      } else if (types.isMap(value)) {
        label = `${name}(${value.size}) `;
        value.forEach((item, key) => add(() => `${step(key, level + 1, path)} => ${step(item, level + 1, path)}`));
      } else if (types.isSet(value)) {
        label = `${name}(${value.size}) `;
        value.forEach((item) => add(() => step(item, level + 1, path)));
      }
      if (!isTyped) {
        for (const key of Reflect.ownKeys(value)) {
          if (isList && (key === 'length' || /^\d+$/.test(String(key)))) continue;
          const own = Object.getOwnPropertyDescriptor(value, key);
          if (own === undefined || !(own.enumerable || given.showHidden)) continue;
          const text = () => own.get ? (own.set ? '[Getter/Setter]' : '[Getter]') : own.set ? '[Setter]' : step(own.value, level + 1, path);
          add(() => `${keyText(key)}: ${text()}`);
        }
      }
      if (more > 0) items.push(`... ${more} more item${more > 1 ? 's' : ''}`);
      if (items.length === 0) return `${label}${open}${close}`;
      const pad = '  '.repeat(level + 1);
      const total = items.reduce((sum, item) => sum + item.length + 2, 0);
      if (total + label.length <= width - 8 && !items.some((item) => item.includes('\n')))
        return `${label}${open} ${items.join(', ')} ${close}`;
      return `${label}${open}\n${pad}${items.join(`,\n${pad}`)}\n${'  '.repeat(level)}${close}`;
    };
    try {
      return step(root, 0, []);
    } catch {
      return '[a value that cannot be shown]';
    }
  };
  inspect.custom = Symbol.for('nodejs.util.inspect.custom');

  const plain = (value) => (typeof value === 'string' ? value.slice(0, MAX_CHARS) : inspect(value));
  const format = (first, ...rest) => {
    let at = 0;
    let text = '';
    if (typeof first === 'string') {
      text = first.slice(0, MAX_CHARS).replace(/%[sdifjoOc%]/g, (mark) => {
        if (mark === '%%') return rest.length > 0 ? '%' : mark;
        if (at >= rest.length) return mark;
        const value = rest[at++];
        switch (mark) {
          case '%s': return typeof value === 'bigint' ? `${value}n` : typeof value === 'object' && value !== null ? inspect(value, { depth: 0 }) : String(value);
          case '%d': return typeof value === 'bigint' ? `${value}n` : typeof value === 'symbol' ? 'NaN' : String(Number(value));
          case '%i': return typeof value === 'bigint' ? `${value}n` : String(parseInt(value, 10));
          case '%f': return String(parseFloat(value));
          case '%j': try { return String(JSON.stringify(value)); } catch { return '[Circular]'; }
          case '%c': return '';
          default: return inspect(value);
        }
      });
    } else if (first !== undefined || rest.length > 0) {
      text = plain(first);
    }
    for (; at < rest.length && text.length < MAX_CHARS; at++) text += ` ${plain(rest[at])}`;
    return text;
  };

  const isDeepStrictEqual = (a, b, pairs = []) => {
    if (Object.is(a, b)) return true;
    if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
    if (Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
    if (pairs.some(([left, right]) => left === a && right === b)) return true;
    const next = [...pairs, [a, b]];
    const same = (left, right) => isDeepStrictEqual(left, right, next);
    if (types.isDate(a)) return types.isDate(b) && Object.is(a.getTime(), b.getTime());
    if (types.isRegExp(a)) return String(a) === String(b) && a.lastIndex === b.lastIndex;
    if (types.isNativeError(a) && (a.message !== b.message || a.name !== b.name)) return false;
    if (types.isBoxedPrimitive(a) && !Object.is(a.valueOf(), b.valueOf())) return false;
    if (types.isTypedArray(a)) return a.length === b.length && a.every((item, i) => Object.is(item, b[i]));
    if (types.isMap(a)) {
      if (a.size !== b.size) return false;
      for (const [key, item] of a)
        if (!(b.has(key) ? same(item, b.get(key)) : [...b].some(([other, value]) => same(key, other) && same(item, value)))) return false;
    }
    if (types.isSet(a)) {
      if (a.size !== b.size) return false;
      for (const item of a) if (!b.has(item) && ![...b].some((other) => same(item, other))) return false;
    }
    const [left, right] = [Object.keys(a), Object.keys(b)];
    return left.length === right.length && Array.isArray(a) === Array.isArray(b)
      && left.every((key) => Object.hasOwn(b, key) && same(a[key], b[key]));
  };

  const CUSTOM = Symbol.for('nodejs.util.promisify.custom');
  const promisify = (f) => {
    if (typeof f !== 'function') throw new TypeError('promisify takes a function');
    if (typeof f[CUSTOM] === 'function') return f[CUSTOM];
    return function (...args) {
      return new Promise((resolve, reject) => {
        Reflect.apply(f, this, [...args, (error, value) => (error ? reject(error) : resolve(value))]);
      });
    };
  };
  promisify.custom = CUSTOM;
  const callbackify = (f) => (...args) => {
    const done = args.pop();
    f(...args).then((value) => queueMicrotask(() => done(null, value)), (error) => queueMicrotask(() => done(error)));
  };
  const { TextEncoder, TextDecoder } = need('text');
  return {
    inspect, format, promisify, callbackify, types, TextEncoder, TextDecoder, isDeepStrictEqual,
    inherits: (child, parent) => Object.setPrototypeOf(child.prototype, parent.prototype),
    deprecate: (f) => f,
    isArray: Array.isArray,
    stripVTControlCharacters: (text) => String(text).replace(/[\u001b\u009b][[\]()#;?]*(?:\d{1,4}(?:;\d{0,4})*)?[\dA-PR-TZcf-nq-uy=><~]/g, ''),
    toUSVString: (text) => String(text).toWellFormed(),
  };
}
