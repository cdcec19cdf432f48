// The part of Node's Buffer that tools use: conversions, comparison, concatenation, numbers.
(host, need) => {
  'use strict';
  const { binaryOf, bytesOf } = need('text');
  const MAX_BYTES = 2 ** 31 - 1;
  const ENCODINGS = {
    __proto__: null, utf8: 'utf8', 'utf-8': 'utf8', hex: 'hex', base64: 'base64', base64url: 'base64url', latin1: 'latin1',
    binary: 'latin1', ascii: 'latin1', ucs2: 'utf16le', 'ucs-2': 'utf16le', utf16le: 'utf16le', 'utf-16le': 'utf16le',
  };
  const encodingOf = (name) => {
    const found = ENCODINGS[String(name ?? 'utf8').toLowerCase()];
    if (found === undefined) throw new TypeError(`Unknown encoding: ${name}`);
    return found;
  };
  const encode = (text, encoding) => host.encode(String(text).toWellFormed(), encodingOf(encoding));
  const own = (bytes) => new Buffer(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const sized = (size) => {
    if (typeof size !== 'number' || !(size >= 0 && size <= MAX_BYTES))
      throw new RangeError(`the size of a buffer is between 0 and ${MAX_BYTES} bytes`);
    return new Buffer(size);
  };
  class Buffer extends Uint8Array {
    static from(source, encoding, length) {
      if (typeof source === 'string') return own(encode(source, encoding));
      if (source instanceof ArrayBuffer || source instanceof SharedArrayBuffer) return new Buffer(source, encoding, length);
      if (source?.type === 'Buffer' && Array.isArray(source.data)) return own(Uint8Array.from(source.data));
      if (ArrayBuffer.isView(source) || Array.isArray(source) || typeof source?.length === 'number')
        return own(Uint8Array.from(source));
      if (typeof source?.valueOf === 'function' && source.valueOf() !== source) return Buffer.from(source.valueOf(), encoding, length);
      throw new TypeError('a buffer is made from a string, bytes or a list of numbers');
    }
    static alloc(size, fill, encoding) {
      const made = sized(size);
      return fill === undefined || fill === 0 ? made : made.fill(fill, encoding);
    }
    static allocUnsafe(size) { return sized(size); }
    static isBuffer(value) { return value instanceof Buffer; }
    static isEncoding(name) { return ENCODINGS[String(name).toLowerCase()] !== undefined; }
    static byteLength(value, encoding) {
      return typeof value === 'string' ? encode(value, encoding).length : value.byteLength;
    }
    static concat(list, total = list.reduce((sum, part) => sum + part.length, 0)) {
      const made = Buffer.alloc(total);
      let at = 0;
      for (const part of list) {
        if (at >= total) break;
        made.set(part.subarray(0, total - at), at);
        at += part.length;
      }
      return made;
    }
    static compare(a, b) {
      const length = Math.min(a.length, b.length);
      for (let i = 0; i < length; i++) if (a[i] !== b[i]) return a[i] < b[i] ? -1 : 1;
      return Math.sign(a.length - b.length);
    }
    toString(encoding, start = 0, end = this.length) {
      return host.text(binaryOf(this.subarray(start, end)), encodingOf(encoding));
    }
    toJSON() { return { type: 'Buffer', data: Array.from(this) }; }
    equals(other) { return Buffer.compare(this, other) === 0; }
    compare(other) { return Buffer.compare(this, other); }
    slice(start, end) { return this.subarray(start, end); }
    subarray(start, end) {
      const part = new Uint8Array(this.buffer, this.byteOffset, this.byteLength).subarray(start, end);
      return own(part);
    }
    write(text, offset = 0, length = this.length - offset, encoding = 'utf8') {
      if (typeof offset === 'string') [offset, length, encoding] = [0, this.length, offset];
      if (typeof length === 'string') [length, encoding] = [this.length - offset, length];
      const bytes = encode(text, encoding).subarray(0, Math.min(length, this.length - offset));
      this.set(bytes, offset);
      return bytes.length;
    }
    copy(target, at = 0, start = 0, end = this.length) {
      const part = this.subarray(start, Math.min(end, start + target.length - at));
      target.set(part, at);
      return part.length;
    }
    fill(value, start = 0, end = this.length, encoding = 'utf8') {
      if (typeof start === 'string') [start, end, encoding] = [0, this.length, start];
      if (typeof value === 'number') return super.fill(value, start, end);
      const pattern = typeof value === 'string' ? encode(value, encoding) : bytesOf(value);
      for (let i = start; i < end; i++) this[i] = pattern.length === 0 ? 0 : pattern[(i - start) % pattern.length];
      return this;
    }
    indexOf(value, from = 0, encoding = 'utf8') {
      if (typeof value === 'number') return super.indexOf(value & 255, from);
      const wanted = host.text(binaryOf(typeof value === 'string' ? encode(value, encoding) : bytesOf(value)), 'latin1');
      return binaryOf(this).indexOf(wanted, from);
    }
    includes(value, from, encoding) { return this.indexOf(value, from, encoding) >= 0; }
  }
  const view = (buffer) => new DataView(buffer.buffer, buffer.byteOffset, buffer.byteLength);
  const KINDS = [
    ['UInt8', 'Uint8', 1], ['Int8', 'Int8', 1], ['UInt16', 'Uint16', 2], ['Int16', 'Int16', 2], ['UInt32', 'Uint32', 4],
    ['Int32', 'Int32', 4], ['BigUInt64', 'BigUint64', 8], ['BigInt64', 'BigInt64', 8], ['Float', 'Float32', 4],
    ['Double', 'Float64', 8],
  ];
  for (const [name, kind, size] of KINDS) {
    for (const [ending, isLittle] of size === 1 ? [['', true]] : [['LE', true], ['BE', false]]) {
      const method = (verb, f) =>
        Object.defineProperty(Buffer.prototype, `${verb}${name}${ending}`, { value: f, writable: true, configurable: true });
      method('read', function (at = 0) { return view(this)[`get${kind}`](at, isLittle); });
      method('write', function (value, at = 0) {
        view(this)[`set${kind}`](at, value, isLittle);
        return at + size;
      });
    }
  }
  return { Buffer, constants: { MAX_LENGTH: MAX_BYTES }, kMaxLength: MAX_BYTES };
}
