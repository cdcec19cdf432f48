// Text from tools and models, made fit to be looked at: bounded, and without anything that acts or hides.

/** Terminal sequences that only move or colour: CSI, and OSC up to its end. */
const SEQUENCES = /\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)/g;
/** Control characters, and characters that change the direction of text or have no width. */
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Takes colours out and shows other control characters as text. */
export function cleanText(text: string): string {
  return text
    .replace(SEQUENCES, "")
    .replace(/\r\n?/g, "\n")
    .replace(HIDDEN, (character) => {
      const code = character.charCodeAt(0);
      if (code < 0x20) return String.fromCharCode(0x2400 + code);
      return `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
    });
}

export interface CutText {
  text: string;
  /** Characters that are left out. */
  left: number;
}

/** The beginning and the end of a long text. */
export function cutMiddle(text: string, max: number): CutText {
  if (text.length <= max) return { text, left: 0 };
  const head = Math.floor(max / 2);
  const left = text.length - max;
  return { text: `${text.slice(0, head)}\n[… ${left} characters are not shown …]\n${text.slice(text.length - (max - head))}`, left };
}

/** The end of a text, from the beginning of a line where one is near. */
export function tail(text: string, max: number): string {
  if (text.length <= max) return text;
  const end = text.slice(text.length - max);
  const line = end.indexOf("\n");
  return line >= 0 && line < 400 ? end.slice(line + 1) : end;
}

/** One line of at most `max` characters. */
export function oneLine(text: string, max: number): string {
  const line = cleanText(text.slice(0, max * 4)).replace(/\s+/g, " ").trim();
  return line.length > max ? `${line.slice(0, max - 1)}…` : line;
}

export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = bytes / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** How long ago, in a few words. */
export function formatAgo(thenMs: number, nowMs: number): string {
  const seconds = Math.max(0, Math.round((nowMs - thenMs) / 1000));
  if (seconds < 10) return "just now";
  if (seconds < 60) return `${seconds} s ago`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min ago`;
  const hours = Math.round(minutes / 60);
  if (hours < 24) return `${hours} h ago`;
  return new Date(thenMs).toLocaleDateString();
}
