// Text from tools and models, made fit to be looked at: bounded, and without anything that acts or hides.
import { showSigns } from "./visible";

/** Shows characters that act or hide as signs; removes none of them. */
export function cleanText(text: string): string {
  return showSigns(text).replace(/\r\n/g, "\n");
}

/** The colours and line erasures of a terminal (CSI with `m` or `K`). */
const COLOURS = /\u001b\[[\d;]*[mK]/g;

/** Output of a command, without its colours: all else that acts or hides is a sign. */
export function cleanOutput(text: string): string {
  return cleanProse(text.replace(COLOURS, ""));
}

/** {@link cleanText} for what is read and not decided about: blanks of a language stay. */
export function cleanProse(text: string): string {
  return showSigns(text, true).replace(/\r\n/g, "\n");
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
