// Signs for characters that act, hide or reorder text. Nothing is removed: a person decides about what is shown.
import { HAN, MARKS, MAX_MARKS, MONGOLIAN, NAMES, NOTE, WARN } from "./visible-table";

export interface Sign {
  /** Name on the sign, as `ESC` or `U+202E`. */
  name: string;
  title: string;
  character: string;
  /** True if the character can make a text read as another one: it raises the banner. */
  isWarning: boolean;
}

/** A class of a regular expression for ranges of code points. */
function classOf(ranges: readonly (readonly [number, number])[]): string {
  return `[${ranges.map(([first, last]) => `\\u{${first.toString(16)}}-\\u{${last.toString(16)}}`).join("")}]`;
}

/** Bytes that are not UTF-8 come as lone surrogates, U+DC80 to U+DCFF for 0x80 to 0xFF. */
const SURROGATE = "[\\u{d800}-\\u{dfff}]";
const isWarn = new RegExp(`${classOf(WARN)}|${SURROGATE}`, "u");
const isNote = new RegExp(classOf(NOTE), "u");
const isMark = new RegExp(classOf(MARKS), "u");
const isMongolian = new RegExp(classOf(MONGOLIAN), "u");
const isHan = new RegExp(classOf(HAN), "u");
/** Anything that may get a sign. */
const ANY = new RegExp([classOf(WARN), SURROGATE, classOf(NOTE), classOf(MARKS)].join("|"), "gu");

/** True for a character above U+007F that gets no sign. */
function isPlain(text: string | undefined): boolean {
  return text !== undefined && (text.codePointAt(0) ?? 0) > 0x7f && !isWarn.test(text) && !isNote.test(text);
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
  if (code >= 0xfe00 && code <= 0xfe0f) return before !== undefined && !isWarn.test(before) && !isNote.test(before);
  if (code >= 0x180b && code <= 0x180f && code !== 0x180e) return before !== undefined && isMongolian.test(before);
  if (code >= 0xe0100 && code <= 0xe01ef) return before !== undefined && isHan.test(before);
  return false;
}

function signOf(text: string, at: number, character: string): Sign | null {
  const code = character.codePointAt(0) ?? 0;
  // A line end of Windows is one line end.
  if (code === 0x0d && text[at + 1] === "\n") return null;
  const isWarning = isWarn.test(character);
  // Joiners and selectors in their place stay what they are: an emoji or a letter is told by its look.
  if (isWarning && isOrdinary(text, at, code)) return null;
  return makeSign(character, isWarning);
}

function makeSign(character: string, isWarning: boolean): Sign {
  const code = character.codePointAt(0) ?? 0;
  if (code >= 0xdc80 && code <= 0xdcff) {
    const name = `0x${(code - 0xdc00).toString(16).toUpperCase()}`;
    return { name, title: `${name}, a byte that is not UTF-8`, character, isWarning };
  }
  const point = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  const name = NAMES[code] ?? point;
  return { name, title: name === point ? point : `${point} ${name}`, character, isWarning };
}

/** Splits a text into what is shown as it is, and signs. */
export function splitSigns(text: string): (string | Sign)[] {
  // Most lines are plain.
  if (/^[\t\n -~]*$/.test(text)) return text ? [text] : [];
  const parts: (string | Sign)[] = [];
  let from = 0;
  /** Where the last match ended, and the combining marks in a row up to there. */
  let end = 0;
  let marks = 0;
  for (const match of text.matchAll(ANY)) {
    if (match.index !== end) marks = 0;
    end = match.index + match[0].length;
    let sign: Sign | null;
    if (isMark.test(match[0])) {
      sign = marks >= MAX_MARKS ? makeSign(match[0], true) : null;
      marks += 1;
    } else {
      sign = signOf(text, match.index, match[0]);
      if (!isWarn.test(match[0])) marks = 0;
    }
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
