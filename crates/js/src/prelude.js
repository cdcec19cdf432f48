// What a script finds around it, built from the program's own functions. In: `host`, which no script ever
// sees. Out: what the program calls.
(host) => {
  'use strict';
  const { stringify, parse } = JSON;
  const MAX_CHARS = 65536, MAX_ITEMS = 100, MAX_DEPTH = 4, MAX_NESTED_CHARS = 2000;
  const waiting = new Map();
  const define = (name, value) =>
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });

  // A stack without our own lines, which say nothing to whoever wrote the script.
  const ownLines = (stack) =>
    String(stack ?? '').split('\n').filter((line) => !line.includes('<glovebox>')).join('\n');

  // ---- showing values

  const show = (value) => {
    let left = MAX_CHARS;
    const take = (text) => {
      const cut = text.length > left ? text.slice(0, left) + '...' : text;
      left = Math.max(0, left - text.length);
      return cut;
    };
    const within = (value, depth, above) => {
      switch (typeof value) {
        case 'string':
          return take(stringify(value.length > MAX_NESTED_CHARS ? value.slice(0, MAX_NESTED_CHARS) + '...' : value));
        case 'bigint': return take(`${value}n`);
        case 'symbol': return take(value.toString());
        case 'function': return take(`[Function ${value.name || '(anonymous)'}]`);
        case 'object': break;
        default: return take(Object.is(value, -0) ? '-0' : String(value));
      }
      if (value === null) return 'null';
      if (above.includes(value)) return '[Circular]';
      if (value instanceof Error) return take(`${value.stack ? `${value}\n${ownLines(value.stack)}` : value}`);
      if (value instanceof Date) return take(Number.isNaN(+value) ? 'Invalid Date' : value.toISOString());
      if (value instanceof RegExp) return take(String(value));
      if (value instanceof Promise) return 'Promise {}';
      const kind = value.constructor?.name;
      if (depth >= MAX_DEPTH || left === 0) return Array.isArray(value) ? '[...]' : `[${kind ?? 'Object'}]`;
      const path = [...above, value];
      const items = [];
      let total = 0;
      const list = (iterable, one) => {
        for (const item of iterable) {
          total += 1;
          if (items.length < MAX_ITEMS && left > 0) items.push(one(item));
          else if (total > 10 * MAX_ITEMS) { total = Infinity; break; }
        }
      };
      let [open, close, label] = ['{ ', ' }', kind && kind !== 'Object' && kind !== 'Array' ? `${kind} ` : ''];
      if (Array.isArray(value) || ArrayBuffer.isView(value)) {
        [open, close] = ['[', ']'];
        total = value.length ?? value.byteLength;
        for (let i = 0; i < Math.min(total, MAX_ITEMS) && left > 0; i++)
          items.push(within(value[i], depth + 1, path));
      } else if (value instanceof Map) {
        list(value, ([k, v]) => `${within(k, depth + 1, path)} => ${within(v, depth + 1, path)}`);
      } else if (value instanceof Set) {
        list(value, (item) => within(item, depth + 1, path));
      } else {
        list(Reflect.ownKeys(value).filter((key) => typeof key === 'string'), (key) => {
          const name = /^[A-Za-z_$][\w$]*$/.test(key) ? key : stringify(key);
          return `${take(name)}: ${within(value[key], depth + 1, path)}`;
        });
      }
      if (total > items.length)
        items.push(total === Infinity ? '... more' : `... ${total - items.length} more`);
      if (items.length === 0) return label + (open + close).replace('  ', '');
      const one = items.join(', ');
      if (one.length <= 100 && !one.includes('\n')) return label + open + one + close;
      const pad = '  '.repeat(depth + 1);
      return `${label}${open.trim()}\n${pad}${items.join(`,\n${pad}`)}\n${'  '.repeat(depth)}${close.trim()}`;
    };
    try {
      if (typeof value === 'string') return take(value).toWellFormed();
      return within(value, 0, []).toWellFormed();
    } catch (error) {
      return '[a value that cannot be shown]';
    }
  };

  const print = (...values) => host.print(values.map(show).join(' ') + '\n');
  define('console', { log: print, info: print, debug: print, warn: print, error: print });
  define('print', print);

  // ---- tools

  class ToolError extends Error {
    constructor(fault) {
      super(fault.message);
      this.name = 'ToolError';
      this.code = fault.code;
      this.class = fault.class;
      this.remedy = fault.remedy;
    }
  }
  class Outcome {
    constructor({ text, facts, is_error }) {
      this.text = text;
      this.facts = facts;
      this.is_error = is_error;
    }
    toString() { return this.text; }
  }
  const callTool = (name, args = {}) => {
    // Where it was called: once it has been waited for, no stack says that any more.
    const { stack } = new Error();
    return new Promise((resolve, reject) => {
      waiting.set(host.call(String(name), stringify(args) ?? '{}'), { resolve, reject, stack });
    });
  };
  define('callTool', callTool);
  define('tools', new Proxy(Object.create(null), {
    get: (_, name) => typeof name === 'string' && name !== 'then' ? (args) => callTool(name, args) : undefined,
  }));

  // ---- time

  define('setTimeout', (work, ms = 0, ...args) => {
    const id = host.timer(Math.min(Math.max(Number(ms) || 0, 0), 2 ** 31));
    waiting.set(id, { fire: () => work(...args) });
    return id;
  });
  define('clearTimeout', (id) => { if (waiting.get(id)?.fire) { waiting.delete(id); host.forget(id); } });

  // ---- the context

  let context;
  Object.defineProperty(globalThis, 'CONTEXT_DATA', {
    get: () => context ??= host.context(),
    set: (value) => { context = value; },
    configurable: true,
  });
  const lineAt = (text, offset) => {
    const start = text.lastIndexOf('\n', offset - 1) + 1;
    const end = text.indexOf('\n', offset);
    return text.slice(Math.max(start, offset - 500), Math.min(end < 0 ? text.length : end, offset + 1500));
  };
  define('search', (pattern, { text = globalThis.CONTEXT_DATA, limit = 100 } = {}) => {
    const hits = [];
    let [line, counted] = [1, 0];
    const hit = (offset) => {
      for (let at; (at = text.indexOf('\n', counted)) >= 0 && at < offset; counted = at + 1) line += 1;
      hits.push({ line, offset, text: lineAt(text, offset) });
    };
    if (pattern instanceof RegExp) {
      const flags = pattern.flags.replace(/[gy]/g, '') + 'g';
      for (const match of text.matchAll(new RegExp(pattern.source, flags))) {
        if (hits.length >= limit) break;
        hit(match.index);
      }
    } else {
      const wanted = String(pattern);
      for (let at = -1; hits.length < limit && (at = text.indexOf(wanted, at + 1)) >= 0;) hit(at);
    }
    return hits;
  });
  define('lines', (first, count = 50, { text = globalThis.CONTEXT_DATA } = {}) => {
    let start = 0;
    for (let line = 1; line < first; line++) {
      const at = text.indexOf('\n', start);
      if (at < 0) return '';
      start = at + 1;
    }
    let end = start;
    for (let line = 0; line < count; line++) {
      const at = text.indexOf('\n', end);
      if (at < 0) return text.slice(start);
      end = at + 1;
    }
    return text.slice(start, end);
  });

  return {
    show,
    forget: () => { context = undefined; },
    // A call has ended, or it is time for something.
    settle: (id, isFault, json) => {
      const entry = waiting.get(id);
      waiting.delete(id);
      if (!entry) return;
      if (entry.fire) {
        try { entry.fire(); } catch (error) { print('Uncaught', error); }
      } else if (isFault) {
        const error = new ToolError(parse(json));
        error.stack = ownLines(entry.stack);
        entry.reject(error);
      } else {
        entry.resolve(new Outcome(parse(json)));
      }
    },
    // What a script threw: message and stack.
    describe: (error) => error instanceof Error
      ? [`${error.name}: ${error.message}`.toWellFormed(), ownLines(error.stack).toWellFormed()]
      : [`threw ${show(error)}`, ''],
  };
}
