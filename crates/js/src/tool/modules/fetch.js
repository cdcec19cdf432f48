// fetch, Headers and Response, where the operator has granted hosts. The host of this process makes the requests; bodies
// are whole, never streams.
(host, need) => {
  'use strict';
  const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
  const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];
  const NO_BODY = [101, 204, 205, 304];
  const nameOf = (name) => {
    const text = String(name);
    if (!TOKEN.test(text)) throw new TypeError(`"${text.slice(0, 200)}" is no name of a header`);
    return text.toLowerCase();
  };
  const valueOf = (value) => {
    const text = String(value).replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, '');
    if (/[\0\r\n]|[^\0-\xff]/.test(text)) throw new TypeError('the value of a header has characters that no header has');
    return text;
  };

  class Headers {
    #values = new Map();
    constructor(init) {
      if (init === undefined || init === null) return;
      if (typeof init !== 'object') throw new TypeError('headers are an object, pairs or Headers');
      const pairs = typeof init[Symbol.iterator] === 'function' ? [...init] : Object.entries(init);
      for (const pair of pairs) {
        const [name, value, ...rest] = [...pair];
        if (value === undefined || rest.length > 0) throw new TypeError('a header has a name and a value');
        this.append(name, value);
      }
    }
    append(name, value) {
      const key = nameOf(name), text = valueOf(value);
      const known = this.#values.get(key);
      if (known === undefined) this.#values.set(key, [text]);
      else known.push(text);
    }
    set(name, value) { this.#values.set(nameOf(name), [valueOf(value)]); }
    get(name) { return this.#values.get(nameOf(name))?.join(', ') ?? null; }
    has(name) { return this.#values.has(nameOf(name)); }
    delete(name) { this.#values.delete(nameOf(name)); }
    getSetCookie() { return [...(this.#values.get('set-cookie') ?? [])]; }
    forEach(f, self) { for (const [name, value] of this) f.call(self, value, name, this); }
    *entries() {
      for (const name of [...this.#values.keys()].sort()) {
        // Cookies have commas of their own.
        if (name === 'set-cookie') for (const value of this.getSetCookie()) yield [name, value];
        else yield [name, this.get(name)];
      }
    }
    *keys() { for (const [name] of this) yield name; }
    *values() { for (const [, value] of this) yield value; }
    [Symbol.iterator]() { return this.entries(); }
  }

  // The bytes of a body, and what kind of content that is.
  const bytesOf = (body) => {
    const { TextEncoder, bytesOf } = need('text');
    const { URLSearchParams } = need('url');
    if (body === undefined || body === null) return [new Uint8Array(0), null];
    if (body instanceof URLSearchParams)
      return [new TextEncoder().encode(body.toString()), 'application/x-www-form-urlencoded;charset=UTF-8'];
    // A copy: what the tool does to its own later changes nothing.
    if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) return [new Uint8Array(bytesOf(body)), null];
    if (typeof body === 'object' || typeof body === 'function' || typeof body === 'symbol')
      throw new TypeError('a body is a string, URLSearchParams, an ArrayBuffer or a typed array');
    return [new TextEncoder().encode(String(body)), 'text/plain;charset=UTF-8'];
  };

  class Response {
    #bytes;
    #isEmpty;
    #url = '';
    #isRedirected = false;
    #type = 'default';
    #status;
    #statusText;
    bodyUsed = false;
    constructor(body = null, { status = 200, statusText = '', headers } = {}) {
      const code = Number(status);
      if (!Number.isInteger(code) || code < 200 || code > 599) throw new RangeError('a status is a number from 200 to 599');
      if (body !== null && NO_BODY.includes(code)) throw new TypeError(`an answer with status ${code} has no body`);
      const [bytes, kind] = bytesOf(body);
      this.#bytes = bytes;
      this.#isEmpty = body === null;
      this.headers = new Headers(headers);
      if (kind !== null && !this.headers.has('content-type')) this.headers.set('content-type', kind);
      this.#status = code;
      this.#statusText = String(statusText);
    }
    static json(value, init = {}) {
      const response = new Response(JSON.stringify(value), init);
      if (!new Headers(init.headers).has('content-type')) response.headers.set('content-type', 'application/json');
      return response;
    }
    static received(answer, bytes) {
      const response = new Response(null, { statusText: answer.status_text });
      response.#status = answer.status;
      // A server may send what no tool could set.
      for (const [name, value] of answer.headers) {
        try { response.headers.append(name, value); } catch { /* left out */ }
      }
      response.#bytes = bytes;
      response.#isEmpty = false;
      response.#url = answer.url;
      response.#isRedirected = answer.is_redirected;
      response.#type = 'basic';
      return response;
    }
    get status() { return this.#status; }
    get statusText() { return this.#statusText; }
    get ok() { return this.status >= 200 && this.status <= 299; }
    get url() { return this.#url; }
    get redirected() { return this.#isRedirected; }
    get type() { return this.#type; }
    get body() {
      if (this.#isEmpty) return null;
      throw new TypeError('bodies are not streams here; read one with text(), json(), bytes() or arrayBuffer()');
    }
    #take() {
      if (this.bodyUsed) throw new TypeError('Body is unusable: Body has already been read');
      if (!this.#isEmpty) this.bodyUsed = true;
      return this.#bytes;
    }
    async bytes() { return new Uint8Array(this.#take()); }
    async arrayBuffer() { return new Uint8Array(this.#take()).buffer; }
    async text() { return new (need('text').TextDecoder)().decode(this.#take()); }
    async json() { return JSON.parse(await this.text()); }
    clone() {
      if (this.bodyUsed) throw new TypeError('Body is unusable: Body has already been read');
      const copy = new Response(null, { statusText: this.statusText, headers: this.headers });
      copy.#status = this.#status;
      copy.#bytes = this.#bytes;
      copy.#isEmpty = this.#isEmpty;
      copy.#url = this.#url;
      copy.#isRedirected = this.#isRedirected;
      copy.#type = this.#type;
      return copy;
    }
  }
  const { received } = Response;
  delete Response.received;

  const failure = ({ code, message, host: name, port, reason }) => {
    const error = new TypeError(`${code}: ${message}`);
    error.code = code;
    if (name !== '') Object.assign(error, { host: name, port });
    if (reason !== '') error.reason = reason;
    return error;
  };
  const waiting = new Map();

  const fetch = async (input, init) => {
    const { method = 'GET', headers: given, body, redirect = 'follow', signal } = init ?? {};
    const { URL } = need('url');
    const url = new URL(String(input?.url ?? input));
    const upper = String(method).toUpperCase();
    if (!METHODS.includes(upper)) throw new TypeError(`the method is none of ${METHODS.join(', ')}`);
    if (!['follow', 'error', 'manual'].includes(redirect)) throw new TypeError('redirect is none of follow, error, manual');
    const headers = new Headers(given);
    const [bytes, kind] = bytesOf(body);
    if (kind !== null && !headers.has('content-type')) headers.set('content-type', kind);
    if (signal?.aborted) throw signal.reason;
    // Its number, or why it is not made.
    const id = host.fetch(upper, url.href, [...headers].flat(), need('text').binaryOf(bytes), redirect);
    if (typeof id === 'string') throw failure({ code: 'E_LIMIT', message: id, host: '', port: 0, reason: '' });
    return new Promise((resolve, reject) => {
      const abort = () => {
        if (!waiting.delete(id)) return;
        host.abortFetch(id);
        reject(signal.reason);
      };
      waiting.set(id, { resolve, reject, leave: () => signal?.removeEventListener('abort', abort) });
      signal?.addEventListener('abort', abort);
    });
  };

  const settle = (id, outcome, bytes) => {
    const request = waiting.get(id);
    if (request === undefined) return;
    waiting.delete(id);
    request.leave();
    if (outcome.is === 'answer') request.resolve(received(outcome, bytes));
    else request.reject(failure(outcome));
  };
  return { fetch, Headers, Response, settle };
}
