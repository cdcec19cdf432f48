// URL and URLSearchParams; the parser is the program's.
(host) => {
  'use strict';
  const invalid = (input) => Object.assign(new TypeError(`Invalid URL: ${String(input).slice(0, 200)}`), { code: 'ERR_INVALID_URL' });
  const encode = (text) => encodeURIComponent(text.toWellFormed())
    .replace(/%20/g, '+').replace(/[!'()~]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  const unescaped = (text) => host.unescapeForm(text);
  class URLSearchParams {
    #pairs = [];
    #changed = () => {};
    constructor(init = '', changed) {
      if (typeof changed === 'function') this.#changed = changed;
      if (typeof init === 'object' && init !== null) {
        const pairs = typeof init[Symbol.iterator] === 'function' ? [...init] : Object.entries(init);
        this.#pairs = pairs.map((pair) => {
          const [name, value, ...rest] = [...pair];
          if (value === undefined || rest.length > 0) throw new TypeError('a pair has a name and a value');
          return [String(name), String(value)];
        });
      } else {
        this.#read(String(init));
      }
    }
    #read(text) {
      this.#pairs = text.replace(/^\?/, '').split('&').filter((part) => part !== '').map((part) => {
        const at = part.indexOf('=');
        return at < 0 ? [unescaped(part), ''] : [unescaped(part.slice(0, at)), unescaped(part.slice(at + 1))];
      });
    }
    static reread(params, text) { params.#read(text); }
    get size() { return this.#pairs.length; }
    get(name) { return this.#pairs.find(([other]) => other === String(name))?.[1] ?? null; }
    getAll(name) { return this.#pairs.filter(([other]) => other === String(name)).map(([, value]) => value); }
    has(name, value) { return this.#pairs.some(([n, v]) => n === String(name) && (value === undefined || v === String(value))); }
    append(name, value) { this.#pairs.push([String(name), String(value)]); this.#changed(); }
    delete(name, value) {
      this.#pairs = this.#pairs.filter(([n, v]) => n !== String(name) || (value !== undefined && v !== String(value)));
      this.#changed();
    }
    set(name, value) {
      const at = this.#pairs.findIndex(([other]) => other === String(name));
      if (at < 0) return this.append(name, value);
      this.#pairs[at][1] = String(value);
      this.#pairs = this.#pairs.filter(([other], i) => i <= at || other !== String(name));
      this.#changed();
    }
    sort() { this.#pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)); this.#changed(); }
    forEach(f, self) { for (const [name, value] of this.#pairs) f.call(self, value, name, this); }
    *entries() { for (const [name, value] of this.#pairs) yield [name, value]; }
    *keys() { for (const [name] of this.#pairs) yield name; }
    *values() { for (const [, value] of this.#pairs) yield value; }
    [Symbol.iterator]() { return this.entries(); }
    toString() { return this.#pairs.map(([name, value]) => `${encode(name)}=${encode(value)}`).join('&'); }
  }
  const { reread } = URLSearchParams;
  delete URLSearchParams.reread;
  const PARTS = ['href', 'origin', 'protocol', 'username', 'password', 'host', 'hostname', 'port', 'pathname', 'search', 'hash'];
  class URL {
    #parts;
    #params;
    constructor(input, base) {
      this.#take(input, host.parseUrl(String(input).toWellFormed(), base === undefined ? null : String(base).toWellFormed()));
    }
    #take(input, parts) {
      if (parts === undefined) throw invalid(input);
      this.#parts = parts;
    }
    get searchParams() {
      return this.#params ??= new URLSearchParams(this.#parts[9], () => {
        const query = this.#params.toString();
        this.#parts = host.setUrl(this.#parts[0], 'search', query) ?? this.#parts;
      });
    }
    static {
      PARTS.forEach((name, index) => {
        Object.defineProperty(URL.prototype, name, {
          get() { return this.#parts[index]; },
          set(value) {
            const text = String(value).toWellFormed();
            if (name === 'href') this.#take(text, host.parseUrl(text, null));
            else if (name !== 'origin') this.#parts = host.setUrl(this.#parts[0], name, text) ?? this.#parts;
            if (this.#params !== undefined) reread(this.#params, this.#parts[9]);
          },
          configurable: true,
          enumerable: true,
        });
      });
    }
    toString() { return this.#parts[0]; }
    toJSON() { return this.#parts[0]; }
    static canParse(input, base) {
      return host.parseUrl(String(input).toWellFormed(), base === undefined ? null : String(base).toWellFormed()) !== undefined;
    }
    static parse(input, base) { return URL.canParse(input, base) ? new URL(input, base) : null; }
  }
  return { URL, URLSearchParams };
}
