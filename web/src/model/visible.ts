// Signs for characters that act, hide or reorder text. Nothing is removed: a person decides about what is shown.

export interface Sign {
  /** Name on the sign, as `ESC` or `U+202E`. */
  name: string;
  title: string;
  character: string;
  /** True if the character can make a text read as another one: it raises the banner. */
  isWarning: boolean;
}

const NAMES: Record<number, string> = {
  0x7f: "DEL", 0xa0: "NBSP", 0xad: "SHY", 0x34f: "CGJ", 0x61c: "ALM", 0x200b: "ZWSP", 0x200c: "ZWNJ", 0x200d: "ZWJ", 0x200e: "LRM",
  0x200f: "RLM", 0x2028: "LSEP", 0x2029: "PSEP", 0x202a: "LRE", 0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO",
  0x202f: "NNBSP", 0x2060: "WJ", 0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI", 0x3000: "IDSP", 0xfeff: "BOM",
  0xfffd: "U+FFFD",
};
const C0 = "NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US".split(" ");

/** Characters that act, change direction or have no look of their own. */
const WARN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffd-\uffff\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]|[\ud800-\udfff]|[\u{1fffe}\u{1ffff}\u{2fffe}\u{2ffff}\u{3fffe}\u{3ffff}\u{4fffe}\u{4ffff}\u{5fffe}\u{5ffff}\u{6fffe}\u{6ffff}\u{7fffe}\u{7ffff}\u{8fffe}\u{8ffff}\u{9fffe}\u{9ffff}\u{afffe}\u{affff}\u{bfffe}\u{bffff}\u{cfffe}\u{cffff}\u{dfffe}\u{dffff}\u{efffe}\u{effff}\u{ffffe}\u{fffff}\u{10fffe}\u{10ffff}]/u;
/** Blanks that are not the space, and private use. */
const NOTE = /[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\ue000-\uf8ff\u{f0000}-\u{ffffd}\u{100000}-\u{10fffd}]/u;
/** Anything that gets a sign, and carriage returns. */
const ANY = new RegExp(`${WARN.source}|${NOTE.source}`, "gu");

/** True for a character above U+007F that gets no sign. */
function isPlain(text: string | undefined): boolean {
  return text !== undefined && (text.codePointAt(0) ?? 0) > 0x7f && !WARN.test(text) && !NOTE.test(text);
}

/** The character that ends at `at`. */
function characterBefore(text: string, at: number): string | undefined {
  if (at <= 0) return undefined;
  const low = text.charCodeAt(at - 1);
  return low >= 0xdc00 && low <= 0xdfff && at > 1 ? text.slice(at - 2, at) : text[at - 1];
}

function characterAt(text: string, at: number): string | undefined {
  const code = text.codePointAt(at);
  return code === undefined ? undefined : String.fromCodePoint(code);
}

/** Decides by its neighbours if a selector or joiner belongs to a script or an emoji. */
function isOrdinary(text: string, at: number, code: number): boolean {
  const before = characterBefore(text, at);
  const size = code > 0xffff ? 2 : 1;
  const after = characterAt(text, at + size);
  if (code === 0x200c || code === 0x200d) {
    // An emoji may end with its one selector before the joiner.
    const base = before === "\ufe0f" ? characterBefore(text, at - 1) : before;
    return isPlain(base) && isPlain(after);
  }
  if (code >= 0xfe00 && code <= 0xfe0f) return before !== undefined && !WARN.test(before) && !NOTE.test(before);
  if (code >= 0x180b && code <= 0x180f && code !== 0x180e) return before !== undefined && /[\u1820-\u18aa]/.test(before);
  if (code >= 0xe0100 && code <= 0xe01ef) return before !== undefined && /\p{Script=Han}/u.test(before);
  return false;
}

function signOf(text: string, at: number, character: string): Sign | null {
  const code = character.codePointAt(0) ?? 0;
  const point = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  const name = C0[code] ?? NAMES[code] ?? point;
  // A line end of Windows is one line end.
  if (code === 0x0d && text[at + 1] === "\n") return null;
  const isWarning = WARN.test(character) && !isOrdinary(text, at, code);
  // Joiners and selectors in their place stay what they are: an emoji or a letter is told by its look.
  if (!isWarning && WARN.test(character)) return null;
  return { name, title: name === point ? point : `${point} ${name}`, character, isWarning };
}

/** Splits a text into what is shown as it is, and signs. */
export function splitSigns(text: string): (string | Sign)[] {
  const parts: (string | Sign)[] = [];
  let from = 0;
  for (const match of text.matchAll(ANY)) {
    const sign = signOf(text, match.index, match[0]);
    if (!sign) continue;
    if (match.index > from) parts.push(text.slice(from, match.index));
    parts.push(sign);
    from = match.index + match[0].length;
  }
  if (from < text.length) parts.push(text.slice(from));
  return parts;
}

/** Shows signs as text, where no element can stand; with `onlyWarnings` blanks and private use stay. */
export function showSigns(text: string, onlyWarnings = false): string {
  return splitSigns(text)
    .map((part) => (typeof part === "string" ? part : part.isWarning || !onlyWarnings ? `<${part.name}>` : part.character))
    .join("");
}

/** Says how many characters of texts are hidden, and which; null without any. */
export function describeHidden(texts: readonly string[]): string | null {
  const names = new Set<string>();
  let count = 0;
  for (const text of texts) {
    for (const part of splitSigns(text)) {
      if (typeof part === "string" || !part.isWarning) continue;
      count += 1;
      names.add(part.name);
    }
  }
  if (!count) return null;
  const shown = [...names].slice(0, 8).join(", ");
  return `${count} hidden ${count === 1 ? "character" : "characters"}: ${shown}${names.size > 8 ? ", …" : ""}`;
}
