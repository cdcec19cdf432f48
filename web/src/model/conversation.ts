// What a session's page shows, made from its events one by one. Everything in it is bounded: texts are cut when they come
// in, and the oldest entries go when there are too many.
import type { PlacedEvent, SessionEvent } from "../api/events";
import { cleanOutput, cleanProse, cleanText, cutMiddle, tail } from "./text";

/** Characters of one text of the model or the user. */
export const MAX_WORDS = 200_000;
/** Characters of one tool's output. */
export const MAX_OUTPUT = 60_000;
/** Characters of one argument that are shown before a click. */
export const MAX_ARGUMENT = 20_000;
/** Characters of output of a running command: its end is kept. */
export const MAX_LIVE = 30_000;
/** Entries of one conversation. */
export const MAX_ENTRIES = 3000;

export interface Argument {
  name: string;
  value: string;
}

export interface CallEntry {
  kind: "call";
  key: string;
  id: string;
  tool: string;
  server: string | null;
  args: Argument[];
  startedMs: number | null;
  state: "running" | "done" | "failed" | "interrupted";
  /** Output so far, while it runs. */
  live: string;
  isLiveCut: boolean;
  output: string;
  diff: string | null;
  images: number;
  exitCode: number | null;
  wallMs: number | null;
}

export type Entry =
  | { kind: "user"; key: string; text: string }
  | { kind: "words"; key: string; text: string }
  | { kind: "thoughts"; key: string; text: string }
  | { kind: "note"; key: string; tone: "plain" | "warn"; text: string }
  | { kind: "end"; key: string; ending: string; message: string; turns: number; costUsd: number | null }
  | CallEntry;

export interface Conversation {
  entries: Entry[];
  /** Entries that went because there were too many. */
  dropped: number;
  /** Words and thoughts that are on their way. */
  words: string;
  thoughts: string;
  /** A call that is being written. */
  writing: { tool: string; bytes: number } | null;
  turn: number;
  isWorking: boolean;
  queuePosition: number | null;
  costUsd: number;
  /** Place of the last event. */
  seq: number;
  piece: number;
}

export const EMPTY: Conversation = {
  entries: [],
  dropped: 0,
  words: "",
  thoughts: "",
  writing: null,
  turn: 0,
  isWorking: false,
  queuePosition: null,
  costUsd: 0,
  seq: 0,
  piece: 0,
};

function words(text: string): string {
  return cutMiddle(cleanProse(text.slice(0, MAX_WORDS * 2)), MAX_WORDS).text;
}

/** A tool's arguments as names and texts, whole and as they are: the page puts signs in where it shows them. */
export function readArguments(value: unknown): Argument[] {
  const show = (one: unknown) => (typeof one === "string" ? one : JSON.stringify(one, null, 2) ?? "");
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return value === undefined || value === null ? [] : [{ name: "", value: show(value) }];
  }
  return Object.entries(value).map(([name, one]) => ({ name: cleanText(name), value: show(one) }));
}

function add(state: Conversation, ...more: Entry[]): Conversation {
  const entries = [...state.entries, ...more];
  const over = Math.max(0, entries.length - MAX_ENTRIES);
  return { ...state, entries: over ? entries.slice(over) : entries, dropped: state.dropped + over };
}

/** Changes the newest call with this id that still runs. */
function changeCall(state: Conversation, id: string, change: (call: CallEntry) => CallEntry): Conversation {
  for (let at = state.entries.length - 1; at >= 0; at -= 1) {
    const entry = state.entries[at];
    if (entry?.kind === "call" && entry.id === id && entry.state === "running") {
      const entries = state.entries.slice();
      entries[at] = change(entry);
      return { ...state, entries };
    }
  }
  return state;
}

/** Calls that nobody has seen the end of. */
function interruptCalls(state: Conversation): Conversation {
  if (!state.entries.some((entry) => entry.kind === "call" && entry.state === "running")) return state;
  const entries = state.entries.map((entry) =>
    entry.kind === "call" && entry.state === "running" ? { ...entry, state: "interrupted" as const } : entry,
  );
  return { ...state, entries };
}

/** Whether the event has been taken already, which a reader that comes back may meet. */
function isOld(state: Conversation, { seq, piece }: PlacedEvent): boolean {
  return seq < state.seq || (seq === state.seq && piece <= state.piece);
}

export function reduce(state: Conversation, placed: PlacedEvent): Conversation {
  if (isOld(state, placed)) return state;
  const { seq, piece } = placed;
  return take({ ...state, seq, piece }, placed.event, `${seq}.${piece}`, placed.atUnixMs);
}

/** Takes up several events at once. */
export function reduceAll(state: Conversation, events: readonly PlacedEvent[]): Conversation {
  return events.reduce(reduce, state);
}

const settled = { words: "", thoughts: "", writing: null };

function take(state: Conversation, event: SessionEvent, key: string, atUnixMs: number | null): Conversation {
  switch (event.type) {
    case "started":
      return add({ ...state, isWorking: true, queuePosition: null }, { kind: "user", key, text: words(event.task) });
    case "resumed":
      return { ...interruptCalls(state), ...settled, isWorking: true, queuePosition: null };
    case "said":
      return add({ ...interruptCalls(state), isWorking: true }, { kind: "user", key, text: words(event.text) });
    case "turn_started":
      return { ...state, ...settled, turn: event.turn, isWorking: true, queuePosition: null };
    case "text":
      return { ...state, words: tail(state.words + cleanProse(event.text.slice(0, MAX_LIVE)), MAX_WORDS) };
    case "reasoning":
      return { ...state, thoughts: tail(state.thoughts + cleanProse(event.text.slice(0, MAX_LIVE)), MAX_LIVE) };
    case "call_written":
      return { ...state, writing: { tool: event.tool, bytes: event.bytes } };
    case "retrying": {
      const seconds = Math.round(event.wait_ms / 1000);
      const text = `The model's answer broke off; attempt ${event.attempt} follows in ${seconds} s: ${words(event.reason)}`;
      return add({ ...state, ...settled }, { kind: "note", key, tone: "warn", text });
    }
    case "answered": {
      const entries = event.parts.flatMap((part, index): Entry[] => {
        if (part.kind === "text" && part.text.trim()) return [{ kind: "words", key: `${key}.${index}`, text: words(part.text) }];
        if (part.kind === "reasoning" && part.text.trim())
          return [{ kind: "thoughts", key: `${key}.${index}`, text: words(part.text) }];
        return [];
      });
      return add({ ...state, ...settled, costUsd: state.costUsd + (event.cost_usd ?? 0) }, ...entries);
    }
    case "call_started":
      return add(
        { ...state, writing: null },
        {
          kind: "call",
          key,
          id: event.id,
          tool: cleanText(event.tool.slice(0, 200)),
          server: event.server ? cleanText(event.server.name) : null,
          args: readArguments(event.arguments),
          startedMs: atUnixMs,
          state: "running",
          live: "",
          isLiveCut: false,
          output: "",
          diff: null,
          images: 0,
          exitCode: null,
          wallMs: null,
        },
      );
    case "tool_output":
      return changeCall(state, event.id, (call) => {
        const live = call.live + cleanOutput(tail(event.text, MAX_LIVE));
        return { ...call, live: tail(live, MAX_LIVE), isLiveCut: call.isLiveCut || live.length > MAX_LIVE };
      });
    case "call_finished":
      return changeCall(state, event.id, (call) => ({
        ...call,
        state: event.is_error ? "failed" : "done",
        live: "",
        output: cutMiddle(cleanOutput(cutMiddle(event.text, MAX_OUTPUT * 2).text), MAX_OUTPUT).text,
        diff: event.diff ?? null,
        images: event.images?.length ?? 0,
        exitCode: typeof event.facts["exit_code"] === "number" ? event.facts["exit_code"] : null,
        wallMs: event.wall_ms,
      }));
    case "pruned":
      return add(state, { kind: "note", key, tone: "plain", text: `${event.results} old outputs are no longer sent to the model.` });
    case "compacted":
      return add(state, {
        kind: "note",
        key,
        tone: "plain",
        text: `${event.messages} earlier messages are now sent to the model as a summary.`,
      });
    case "not_compacted":
      return add(state, { kind: "note", key, tone: "warn", text: `No summary was made: ${words(event.reason)}` });
    case "sandbox_stopped":
      return add(state, { kind: "note", key, tone: "plain", text: `The sandbox was stopped, and keeps its files: ${words(event.reason)}` });
    case "ended":
      return add(
        { ...interruptCalls(state), ...settled, isWorking: false, queuePosition: null },
        { kind: "end", key, ending: event.ending, message: words(event.message), turns: event.turns, costUsd: event.cost_usd },
      );
    case "queued":
      return { ...state, queuePosition: event.position ?? null };
    case "notice":
      return add(state, {
        kind: "note",
        key,
        tone: event.notice === "sandbox_started" || event.notice === "applied" ? "plain" : "warn",
        text: words(event.message),
      });
    case "approval_answered": {
      const said = { allowed: "The call was allowed.", denied: "The call was denied." }[event.answer];
      return add(state, { kind: "note", key, tone: "plain", text: said ?? "The question ended without an answer." });
    }
    case "approval_asked":
    case "dropped":
      return state;
  }
}
