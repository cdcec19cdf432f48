// What the code of a tool finds around it, built from the program's own functions. In: `host`, which no tool ever sees
// as an object. Out: what the program calls. Globals that few tools use are loaded when they are first touched.
(host) => {
  'use strict';
  const { apply, defineProperty } = Reflect;
  const { parse } = JSON;
  const { asyncIterator } = Symbol;
  const bound = (f) => (self, ...args) => apply(f, self, args);
  const slice = bound(String.prototype.slice);
  const wellFormed = bound(String.prototype.toWellFormed);
  const mapGet = bound(Map.prototype.get), mapSet = bound(Map.prototype.set), mapDelete = bound(Map.prototype.delete);
  const Text = String;
  const global = globalThis;
  const define = (name, value) =>
    defineProperty(global, name, { value, writable: true, configurable: true, enumerable: false });

  // ---- modules and globals that are loaded when they are wanted

  const loaded = new Map();
  const need = (name) => {
    let module = mapGet(loaded, name);
    if (module === undefined) {
      module = host.load(name)(host, need);
      mapSet(loaded, name, module);
    }
    return module;
  };
  const lazy = (name, module) => defineProperty(global, name, {
    get() {
      const value = need(module)[name];
      define(name, value);
      return value;
    },
    set(value) { define(name, value); },
    configurable: true,
    enumerable: false,
  });
  lazy('TextEncoder', 'text');
  lazy('TextDecoder', 'text');
  lazy('URL', 'url');
  lazy('URLSearchParams', 'url');
  lazy('Buffer', 'buffer');
  lazy('structuredClone', 'clone');
  lazy('AbortController', 'abort');
  lazy('AbortSignal', 'abort');
  defineProperty(global, 'crypto', {
    get: () => need('crypto').webcrypto, set(value) { define('crypto', value); }, configurable: true, enumerable: false,
  });

  const MODULES = { __proto__: null, crypto: 'crypto', util: 'util', buffer: 'buffer', url: 'url' };
  const moduleName = (name) => {
    const text = Text(name);
    const found = MODULES[slice(text, 0, 5) === 'node:' ? slice(text, 5) : text];
    if (found === undefined) {
      const error = new Error(`there is no module '${text}' here; tools have node:crypto, node:util, node:buffer and node:url`);
      error.code = 'E_MODULE';
      throw error;
    }
    return found;
  };
  define('require', (name) => need(moduleName(name)));

  // The engine would show this function every caller, those of this file too.
  defineProperty(Error, 'prepareStackTrace', { get() {}, set() {}, configurable: false, enumerable: false });

  // ---- the log

  const log = (level) => (...values) => {
    // Where there is no room any more, nothing is written out.
    if (host.hasLogRoom()) host.log(level, wellFormed(apply(need('util').format, undefined, values)));
  };
  const [debug, info, warn, error] = ['debug', 'info', 'warn', 'error'].map(log);
  const counts = new Map(), timers = new Map();
  define('console', {
    debug, info, log: info, warn, error, dir: info, trace: debug, table: info, group: info, groupCollapsed: info,
    groupEnd() {},
    assert(holds, ...values) { if (!holds) apply(error, undefined, ['Assertion failed', ...values]); },
    count(label = 'default') {
      const count = (mapGet(counts, label) ?? 0) + 1;
      mapSet(counts, label, count);
      info(`${label}: ${count}`);
    },
    time(label = 'default') { mapSet(timers, label, performance.now()); },
    timeEnd(label = 'default') { info(`${label}: ${performance.now() - mapGet(timers, label)}ms`); },
  });

  // ---- time

  const waiting = new Map();
  const start = (work, ms, args, every) => {
    if (typeof work !== 'function') throw new TypeError('a timer takes a function');
    const delay = Math.min(Math.max(Number(ms) || 0, 0), 2 ** 31 - 1);
    const id = host.timer(delay);
    mapSet(waiting, id, { work, args, delay, every });
    return id;
  };
  const clear = (id) => { if (mapDelete(waiting, id)) host.forget(id); };
  define('setTimeout', (work, ms, ...args) => start(work, ms, args, false));
  define('setInterval', (work, ms, ...args) => start(work, Math.max(Number(ms) || 0, 1), args, true));
  define('setImmediate', (work, ...args) => start(work, 0, args, false));
  define('clearTimeout', clear);
  define('clearInterval', clear);
  define('clearImmediate', clear);

  if (host.now() !== undefined) {
    const RealDate = Date;
    const { construct } = Reflect;
    const toText = bound(RealDate.prototype.toString);
    const now = () => host.now();
    const FixedDate = function Date(...args) {
      if (new.target === undefined) return toText(new RealDate(now()));
      return construct(RealDate, args.length === 0 ? [now()] : args, new.target);
    };
    FixedDate.now = now;
    FixedDate.parse = RealDate.parse;
    FixedDate.UTC = RealDate.UTC;
    FixedDate.prototype = RealDate.prototype;
    defineProperty(RealDate.prototype, 'constructor', { value: FixedDate, writable: true, configurable: true });
    define('Date', FixedDate);
    define('performance', { now: () => 0, timeOrigin: now() });
    Math.random = () => host.random();
  }

  // ---- the network

  if (host.canFetch) {
    for (const name of ['fetch', 'Headers', 'Response']) lazy(name, 'fetch');
  } else {
    define('fetch', async () => {
      const refusal = new TypeError(
        'E_NETWORK: tools have no network here; who runs them can grant hosts, and has granted none');
      refusal.code = 'E_NETWORK';
      throw refusal;
    });
  }

  // ---- the call

  const serializer = host.load('serialize')(host.emit, host.maxDepth);
  const call = host.load('call')(serializer);

  return {
    moduleName,
    exportsOf: need,
    // The value of a call, as JSON text given to `emit`; what is returned tells what was changed for that.
    run: async (f, inputText, contextText, callId) => {
      const input = parse(inputText);
      const context = call.context(contextText, callId);
      defineProperty(context, 'abortSignal', {
        get: () => new (need('abort').AbortController)().signal, configurable: true, enumerable: true,
      });
      let value = await apply(f, undefined, [input, context]);
      // A tool that streams: its last value is the result.
      if (typeof value === 'object' && value !== null && typeof value[asyncIterator] === 'function' && typeof value.next === 'function') {
        const stream = value;
        value = undefined;
        for (;;) {
          const { value: next, done } = await stream.next();
          if (!done || next !== undefined) value = next;
          if (done) break;
        }
      }
      return serializer.write(value);
    },
    describe: call.describe,
    // A request has come to something.
    fetched: (id, outcomeText, body) => need('fetch').settle(id, parse(outcomeText), body),
    // It is time for something.
    fire: (id) => {
      const entry = mapGet(waiting, id);
      if (entry === undefined) return;
      mapDelete(waiting, id);
      if (entry.every) {
        const next = host.timer(entry.delay, id);
        mapSet(waiting, next, entry);
      }
      apply(entry.work, undefined, entry.args);
    },
  };
}
