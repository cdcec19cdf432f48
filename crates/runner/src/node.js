// Runs one call of a tool in Node. In: what every engine has, the serializer and `call.js`, and how deep a result may nest.
// The call comes on standard input, and frames go to standard output, as `tool_call.rs` of the crate `js` says. Everything
// used after the tool's code was loaded is taken before, and nothing then goes through iterators of the tool's realm.
//
// None of this keeps the tool in: its walls are the sandbox around the process, and its limits are the parent's.
async (makeSerializer, makeCall, maxDepth) => {
  'use strict';
  // Node before 20 has no such method, and the serializer needs it.
  if (typeof String.prototype.toWellFormed !== 'function') process.exit(126);
  const { readSync, writeSync, writeFileSync } = require('node:fs');
  const { format } = require('node:util');
  const { Writable } = require('node:stream');
  const { pathToFileURL } = require('node:url');
  const { apply, defineProperty } = Reflect;
  const { stringify, parse } = JSON;
  const { asyncIterator } = Symbol;
  const { alloc, allocUnsafe, from: bytesOf, byteLength } = Buffer;
  const bound = (f) => (self, ...args) => apply(f, self, args);
  const slice = bound(String.prototype.slice), wellFormed = bound(String.prototype.toWellFormed);
  const split = bound(String.prototype.split), join = bound(Array.prototype.join), includes = bound(String.prototype.includes);
  const trim = bound(String.prototype.trim), textOfBytes = bound(Buffer.prototype.toString);
  const writeLength = bound(Buffer.prototype.writeUInt32LE);
  const leave = process.reallyExit.bind(process);
  const Text = String, Abort = AbortController, RealSyntaxError = SyntaxError;
  const FILE = '/tmp/tool.mjs', SHOWN = 'tool.js';
  const URL_OF_FILE = pathToFileURL(FILE).href;
  const MAX_LOG_TEXT = 16384, RECORD_BYTES = 16, MAX_STACK = 4096;

  // ---- frames

  const readAll = (length) => {
    const bytes = alloc(length);
    for (let at = 0; at < length;) {
      const read = readSync(0, bytes, at, length - at, null);
      if (read === 0) leave(1);
      at += read;
    }
    return bytes;
  };
  const call = parse(readAll(readAll(4).readUInt32LE(0)).toString('utf8'));
  const { limits } = call;
  const put = (bytes) => {
    for (let at = 0; at < bytes.length;) {
      try {
        at += writeSync(1, bytes, at, bytes.length - at);
      } catch (error) {
        if (error.code !== 'EAGAIN') leave(1);
      }
    }
  };
  const send = (message) => {
    const text = stringify(message);
    const head = allocUnsafe(4);
    writeLength(head, byteLength(text), 0);
    put(head);
    put(bytesOf(text));
  };
  let isAnswered = false;
  const answer = (message) => {
    if (isAnswered) return;
    isAnswered = true;
    send(message);
    // Of a process that failed the host tells which walls it met.
    leave(message.is === 'error' ? 1 : 0);
  };

  // ---- the log

  let logLeft = limits.log_bytes;
  const record = (level, text) => {
    if (logLeft <= 0) return;
    const max = logLeft < MAX_LOG_TEXT ? logLeft : MAX_LOG_TEXT;
    let shown = wellFormed(slice(text, 0, max));
    if (byteLength(shown) > max) shown = wellFormed(textOfBytes(bytesOf(shown), 'utf8', 0, max - 3));
    logLeft -= byteLength(shown) + RECORD_BYTES;
    send({ is: 'log', level, text: shown });
    if (logLeft <= 0) send({ is: 'log', level: 'warn', text: '[the log is full; the rest is left out]' });
  };
  const log = (level) => (...values) => { if (logLeft > 0) record(level, apply(format, undefined, values)); };
  const levels = { debug: 'debug', trace: 'debug', log: 'info', info: 'info', warn: 'warn', error: 'error' };
  for (const name of Object.keys(levels)) console[name] = log(levels[name]);
  // What writes to a stream of the process would break the frames.
  const stream = (level) => new Writable({
    decodeStrings: false,
    write(chunk, _, done) { record(level, trim(Text(chunk))); done(); },
  });
  for (const [name, level] of [['stdout', 'info'], ['stderr', 'error']])
    defineProperty(process, name, { value: stream(level), configurable: true, enumerable: true });

  // ---- failures

  let result = '', resultLeft = limits.output_bytes;
  const serializer = makeSerializer((piece) => {
    resultLeft -= byteLength(piece);
    if (resultLeft < 0) return false;
    result += piece;
    return true;
  }, maxDepth);

  const { own, textOf, context: contextOf, describe: describeThrown } = makeCall(serializer);
  const ownLines = (stack) => {
    const lines = split(stack, '\n');
    let kept = '';
    for (let i = 0; i < lines.length; i++) {
      if (!includes(lines[i], FILE)) continue;
      let line = trim(join(split(lines[i], URL_OF_FILE), SHOWN));
      line = join(split(line, FILE), SHOWN);
      if (kept.length + line.length > MAX_STACK) break;
      kept += kept === '' ? line : `\n${line}`;
    }
    return kept;
  };
  const describe = (thrown) => {
    const told = describeThrown(thrown);
    return { kind: told[0], name: told[1], message: told[2], stack: ownLines(told[3]) };
  };
  const fail = (error) => answer({ is: 'error', ...error });
  const plain = (kind, message) => fail({ kind, name: '', message, stack: '' });
  process.on('uncaughtException', (thrown) => fail(describe(thrown)));
  process.on('unhandledRejection', (reason) => {
    record('warn', `a promise was rejected and nobody handles it: ${textOf(() => reason?.message ?? reason, 500)}`);
  });
  process.on('beforeExit', () => plain('tool', 'the tool waits for a promise that is never settled'));
  process.on('exit', (code) => {
    if (!isAnswered) plain('tool', `the tool ended its process with code ${code}`);
  });

  // ---- what is not as in Node alone

  if (call.fetch) {
    const { fetch } = globalThis;
    globalThis.fetch = async (input, init) => {
      try {
        return await fetch(input, init);
      } catch (error) {
        const { cause } = error ?? {};
        if (error instanceof TypeError && cause !== undefined) {
          error.message = `E_NETWORK: ${error.message}: ${cause?.code ?? cause?.message ?? cause}`;
          error.code = 'E_NETWORK';
        }
        throw error;
      }
    };
  } else {
    globalThis.fetch = async () => {
      const refusal = new TypeError(
        'E_NETWORK: tools have no network here; who runs them can grant hosts, and has granted none');
      refusal.code = 'E_NETWORK';
      throw refusal;
    };
  }
  for (const name of ['module', 'exports', '__filename', '__dirname']) delete globalThis[name];

  // ---- the call

  try {
    const input = parse(call.input);
    const context = contextOf(call.context, call.call_id);
    own(context, 'abortSignal', new Abort().signal);
    writeFileSync(FILE, call.code);
    let loaded;
    try {
      loaded = await import(URL_OF_FILE);
    } catch (thrown) {
      const error = describe(thrown);
      // An error of syntax is thrown before any line of the tool runs.
      if (thrown instanceof RealSyntaxError && !includes(textOf(() => thrown.stack, 64000), `at ${URL_OF_FILE}`))
        error.kind = 'syntax';
      return fail(error);
    }
    const f = loaded.default;
    if (typeof f !== 'function')
      return plain('not_found', 'the code of the tool has no function as its default export');
    let value = await apply(f, undefined, [input, context]);
    // A tool that streams: its last value is the result.
    if (typeof value === 'object' && value !== null && typeof value[asyncIterator] === 'function' && typeof value.next === 'function') {
      const source = value;
      value = undefined;
      for (;;) {
        const { value: next, done } = await source.next();
        if (!done || next !== undefined) value = next;
        if (done) break;
      }
    }
    const changed = serializer.write(value);
    answer({ is: 'value', json: result, warnings: changed === '' ? [] : split(changed, '\n') });
  } catch (thrown) {
    fail(describe(thrown));
  }
}
