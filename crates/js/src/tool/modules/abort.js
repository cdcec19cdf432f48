// AbortController and AbortSignal.
() => {
  'use strict';
  const MAKE = Symbol('make');
  const failure = (name, message) => Object.assign(new Error(message), { name });
  class AbortSignal {
    #listeners = new Set();
    #reason;
    aborted = false;
    onabort = null;
    constructor(key) { if (key !== MAKE) throw new TypeError('Illegal constructor'); }
    get reason() { return this.#reason; }
    throwIfAborted() { if (this.aborted) throw this.#reason; }
    addEventListener(type, listener) { if (type === 'abort') this.#listeners.add(listener); }
    removeEventListener(type, listener) { if (type === 'abort') this.#listeners.delete(listener); }
    static give(signal, reason = failure('AbortError', 'This operation was aborted')) {
      if (signal.aborted) return;
      signal.aborted = true;
      signal.#reason = reason;
      const event = { type: 'abort', target: signal };
      for (const listener of [signal.onabort, ...signal.#listeners])
        if (typeof listener === 'function') listener.call(signal, event);
        else listener?.handleEvent?.(event);
    }
    static abort(reason) {
      const signal = new AbortSignal(MAKE);
      give(signal, reason);
      return signal;
    }
    static timeout(ms) {
      const signal = new AbortSignal(MAKE);
      setTimeout(() => give(signal, failure('TimeoutError', 'The operation was aborted due to timeout')), ms);
      return signal;
    }
    static any(signals) {
      const signal = new AbortSignal(MAKE);
      for (const other of signals) {
        if (other.aborted) give(signal, other.reason);
        else other.addEventListener('abort', () => give(signal, other.reason));
      }
      return signal;
    }
  }
  const { give } = AbortSignal;
  delete AbortSignal.give;
  class AbortController {
    #signal = new AbortSignal(MAKE);
    get signal() { return this.#signal; }
    abort(reason) { give(this.#signal, reason); }
  }
  return { AbortController, AbortSignal };
}
