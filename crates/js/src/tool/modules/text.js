// TextEncoder and TextDecoder. Binary data crosses to the program as text with one character a byte.
(host) => {
  'use strict';
  const fromCodes = String.fromCharCode;
  const binaryOf = (view) => {
    let text = '';
    for (let at = 0; at < view.length; at += 8192)
      text += Reflect.apply(fromCodes, undefined, view.subarray(at, at + 8192));
    return text;
  };
  const bytesOf = (source) => {
    if (source === undefined) return new Uint8Array(0);
    if (source instanceof ArrayBuffer || source instanceof SharedArrayBuffer) return new Uint8Array(source);
    if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
    throw new TypeError('bytes are an ArrayBuffer, a typed array or a DataView');
  };
  class TextEncoder {
    get encoding() { return 'utf-8'; }
    encode(text = '') { return host.encode(String(text).toWellFormed(), 'utf8'); }
    encodeInto(text, into) {
      let read = 0, written = 0;
      for (const character of String(text)) {
        const bytes = this.encode(character);
        if (written + bytes.length > into.length) break;
        into.set(bytes, written);
        written += bytes.length;
        read += character.length;
      }
      return { read, written };
    }
  }
  const LABELS = {
    __proto__: null, 'utf-8': 'utf-8', utf8: 'utf-8', 'utf-16le': 'utf-16le', 'utf-16': 'utf-16le', latin1: 'windows-1252',
    'iso-8859-1': 'windows-1252', ascii: 'windows-1252', 'windows-1252': 'windows-1252',
  };
  class TextDecoder {
    #encoding;
    #fatal;
    #ignoreBOM;
    #pending = '';
    constructor(label = 'utf-8', { fatal = false, ignoreBOM = false } = {}) {
      this.#encoding = LABELS[String(label).trim().toLowerCase()];
      if (this.#encoding === undefined) throw new RangeError(`the encoding "${label}" is not known here`);
      this.#fatal = Boolean(fatal);
      this.#ignoreBOM = Boolean(ignoreBOM);
    }
    get encoding() { return this.#encoding; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#ignoreBOM; }
    decode(source, { stream = false } = {}) {
      let bytes = this.#pending + binaryOf(bytesOf(source));
      this.#pending = '';
      if (stream) {
        const whole = host.wholeCharacters(bytes, this.#encoding);
        this.#pending = bytes.slice(whole);
        bytes = bytes.slice(0, whole);
      }
      const text = host.decode(bytes, this.#encoding, this.#fatal);
      if (text === undefined) throw new TypeError(`the bytes are no ${this.#encoding}`);
      return !this.#ignoreBOM && text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
    }
  }
  return { TextEncoder, TextDecoder, bytesOf, binaryOf };
}
