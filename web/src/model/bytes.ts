// Bytes as text that loses nothing: bytes that are not UTF-8 become lone surrogates, which are shown as signs.

const STRICT = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function tryDecode(bytes: Uint8Array): string | null {
  try {
    return STRICT.decode(bytes);
  } catch {
    return null;
  }
}

/** Length of the sequence that a byte begins; 1 for a byte that begins none. */
function sequenceLength(byte: number): number {
  if (byte >= 0xf0 && byte < 0xf8) return 4;
  if (byte >= 0xe0 && byte < 0xf0) return 3;
  return byte >= 0xc0 && byte < 0xe0 ? 2 : 1;
}

/** Decodes one line that is not UTF-8 as a whole. */
function decodeLine(line: Uint8Array): string {
  let text = "";
  for (let at = 0; at < line.length; ) {
    const byte = line[at] ?? 0;
    const length = sequenceLength(byte);
    const character = tryDecode(line.subarray(at, at + length));
    text += character ?? String.fromCharCode(0xdc00 + byte);
    at += character === null ? 1 : length;
  }
  return text;
}

/** Decodes UTF-8, and keeps each byte that is not. */
export function decodeText(bytes: Uint8Array): string {
  const whole = tryDecode(bytes);
  if (whole !== null) return whole;
  const lines: string[] = [];
  for (let at = 0; at <= bytes.length; ) {
    const found = bytes.indexOf(0x0a, at);
    const end = found < 0 ? bytes.length : found;
    const line = bytes.subarray(at, end);
    lines.push(tryDecode(line) ?? decodeLine(line));
    at = end + 1;
  }
  return lines.join("\n");
}
