// `node:crypto` and Web Crypto: digests, HMAC, random numbers.
(host, need) => {
  'use strict';
  const { binaryOf, bytesOf } = need('text');
  const { Buffer } = need('buffer');
  const HASHES = ['md5', 'sha1', 'sha256', 'sha384', 'sha512'];
  const hashOf = (name) => {
    const found = String(name).toLowerCase().replace(/^(rsa-)?sha-?/, 'sha');
    if (!HASHES.includes(found)) throw new Error(`the digest "${name}" is not known here; there are ${HASHES.join(', ')}`);
    return found;
  };
  const binary = (data, encoding) => binaryOf(typeof data === 'string' ? Buffer.from(data, encoding) : bytesOf(data));
  const buffer = (text) => Buffer.from(text, 'latin1');
  class Hash {
    #algorithm;
    #key;
    #data = [];
    constructor(algorithm, key) {
      this.#algorithm = algorithm;
      this.#key = key;
    }
    update(data, encoding) {
      if (this.#data === undefined) throw new Error('Digest already called');
      this.#data.push(binary(data, encoding));
      return this;
    }
    digest(encoding) {
      if (this.#data === undefined) throw new Error('Digest already called');
      const data = this.#data.join('');
      this.#data = undefined;
      const result = buffer(host.digest(this.#algorithm, this.#key ?? null, data));
      return encoding === undefined || encoding === 'buffer' ? result : result.toString(encoding);
    }
    copy() {
      const made = new Hash(this.#algorithm, this.#key);
      made.#data = [...this.#data];
      return made;
    }
  }
  const MAX_RANDOM_BYTES = 2 ** 31 - 1;
  const randomBytes = (size, callback) => {
    if (typeof size !== 'number' || !(size >= 0 && size <= MAX_RANDOM_BYTES)) throw new RangeError('the size is out of range');
    const made = randomFillSync(Buffer.alloc(size));
    if (callback === undefined) return made;
    queueMicrotask(() => callback(null, made));
  };
  const randomFillSync = (into) => {
    const bytes = bytesOf(into);
    for (let at = 0; at < bytes.length; at += 65536)
      bytes.set(host.randomBytes(Math.min(65536, bytes.length - at)), at);
    return into;
  };
  const randomInt = (low, high) => {
    const [from, to] = high === undefined ? [0, low] : [low, high];
    const range = to - from;
    if (!Number.isSafeInteger(range) || range <= 0 || range >= 2 ** 48) throw new RangeError('the range is out of bounds');
    const limit = 2 ** 48 - (2 ** 48 % range);
    for (;;) {
      const number = randomBytes(6).reduce((sum, byte) => sum * 256 + byte, 0);
      if (number < limit) return from + (number % range);
    }
  };
  const randomUUID = () => {
    const bytes = randomBytes(16);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const hex = bytes.toString('hex');
    return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
  };
  const timingSafeEqual = (a, b) => {
    const [left, right] = [bytesOf(a), bytesOf(b)];
    if (left.length !== right.length) throw new RangeError('Input buffers must have the same byte length');
    let difference = 0;
    for (let i = 0; i < left.length; i++) difference |= left[i] ^ right[i];
    return difference === 0;
  };
  const WEB = { __proto__: null, 'SHA-1': 'sha1', 'SHA-256': 'sha256', 'SHA-384': 'sha384', 'SHA-512': 'sha512' };
  const webcrypto = {
    randomUUID,
    getRandomValues(view) {
      if (!ArrayBuffer.isView(view) || view instanceof DataView) throw new TypeError('getRandomValues takes a typed array');
      if (view.byteLength > 65536) {
        const error = new Error(`The requested length exceeds 65,536 bytes`);
        error.name = 'QuotaExceededError';
        throw error;
      }
      return randomFillSync(view);
    },
    subtle: {
      async digest(algorithm, data) {
        const name = WEB[String(algorithm?.name ?? algorithm).toUpperCase()];
        if (name === undefined) {
          const error = new Error(`the digest "${algorithm?.name ?? algorithm}" is not known here`);
          error.name = 'NotSupportedError';
          throw error;
        }
        const made = buffer(host.digest(name, null, binary(data)));
        return made.buffer.slice(made.byteOffset, made.byteOffset + made.byteLength);
      },
    },
  };
  return {
    createHash: (algorithm) => new Hash(hashOf(algorithm)),
    createHmac: (algorithm, key) => new Hash(hashOf(algorithm), binary(key)),
    hash: (algorithm, data, encoding = 'hex') => new Hash(hashOf(algorithm)).update(data).digest(encoding),
    getHashes: () => [...HASHES],
    randomBytes, randomFillSync, randomInt, randomUUID, timingSafeEqual, webcrypto,
    getRandomValues: webcrypto.getRandomValues, subtle: webcrypto.subtle,
  };
}
