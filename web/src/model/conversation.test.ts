import { describe, expect, it } from "vitest";
import { parseEvent, type PlacedEvent, type SessionEvent } from "../api/events";
import { type CallEntry, EMPTY, MAX_ENTRIES, MAX_LIVE, MAX_OUTPUT, readArguments, reduce, reduceAll } from "./conversation";

function at(seq: number, event: SessionEvent, piece = 0): PlacedEvent {
  return { seq, piece, atUnixMs: 1000 * seq, event };
}

const started: SessionEvent = { type: "started", task: "count", model: "demo", placement: "sandbox", sandbox: "a", system: "" };
const bash: SessionEvent = { type: "call_started", id: "c1", tool: "Bash", arguments: { command: "ls" } };

function finished(text: string, isError = false): SessionEvent {
  return { type: "call_finished", id: "c1", tool: "Bash", text, is_error: isError, facts: { exit_code: isError ? 2 : 0 }, wall_ms: 12 };
}

function lastCall(state: ReturnType<typeof reduceAll>): CallEntry {
  const call = state.entries.filter((entry) => entry.kind === "call").at(-1);
  if (!call) throw new Error("no call");
  return call;
}

describe("reduce", () => {
  it("shows words on their way until the answer has them", () => {
    let state = reduceAll(EMPTY, [
      at(1, started),
      at(2, { type: "turn_started", turn: 1 }),
      at(2, { type: "text", text: "Hel" }, 1),
      at(2, { type: "text", text: "lo" }, 2),
    ]);
    expect(state.words).toBe("Hello");
    state = reduce(state, at(3, { type: "answered", turn: 1, parts: [{ kind: "text", text: "Hello." }], cost_usd: 0.5 }));
    expect(state.words).toBe("");
    expect(state.entries.at(-1)).toMatchObject({ kind: "words", text: "Hello." });
    expect(state.costUsd).toBe(0.5);
  });

  it("takes no event twice, so that a stream may begin before the place it was cut off", () => {
    const events = [at(1, started), at(2, bash), at(2, { type: "tool_output", id: "c1", text: "a\n" }, 1), at(3, finished("a"))];
    const once = reduceAll(EMPTY, events);
    expect(reduceAll(once, events)).toEqual(once);
    expect(reduceAll(reduceAll(EMPTY, events.slice(0, 3)), events.slice(1))).toEqual(once);
  });

  it("follows a call from its start to its end", () => {
    let state = reduceAll(EMPTY, [at(1, bash), at(1, { type: "tool_output", id: "c1", text: "half\n" }, 1)]);
    expect(lastCall(state)).toMatchObject({ state: "running", live: "half\n", args: [{ name: "command", value: "ls" }] });
    state = reduce(state, at(2, finished("all", true)));
    expect(lastCall(state)).toMatchObject({ state: "failed", live: "", output: "all", exitCode: 2, wallMs: 12 });
  });

  it("tells calls of different answers apart that have the same id", () => {
    const state = reduceAll(EMPTY, [at(1, bash), at(2, finished("first")), at(3, bash), at(4, finished("second"))]);
    expect(state.entries.map((entry) => (entry.kind === "call" ? entry.output : ""))).toEqual(["first", "second"]);
  });

  it("leaves no call running when the session has ended or goes on elsewhere", () => {
    const ended: SessionEvent = { type: "ended", ending: "lost", message: "gone", turns: 1, cost_usd: null };
    for (const event of [ended, { type: "resumed", model: "demo" } as const]) {
      expect(lastCall(reduceAll(EMPTY, [at(1, bash), at(2, event)])).state).toBe("interrupted");
    }
  });

  it("bounds what a hostile tool writes", () => {
    const flood = "x".repeat(5_000_000);
    let state = reduceAll(EMPTY, [at(1, bash), at(1, { type: "tool_output", id: "c1", text: flood }, 1)]);
    expect(lastCall(state).live.length).toBeLessThanOrEqual(MAX_LIVE);
    state = reduce(state, at(2, finished(flood)));
    expect(lastCall(state).output.length).toBeLessThan(MAX_OUTPUT + 100);
    expect(lastCall(state).output).toContain("are not shown");
    const many = Array.from({ length: MAX_ENTRIES + 5 }, (_, index) => at(index + 3, { type: "said", text: `${index}` }));
    state = reduceAll(state, many);
    expect(state.entries).toHaveLength(MAX_ENTRIES);
    expect(state.dropped).toBe(6);
  });
});

describe("readArguments", () => {
  it("takes whatever a model wrote", () => {
    expect(readArguments({ path: "a", lines: [1] })).toEqual([
      { name: "path", value: "a" },
      { name: "lines", value: "[\n  1\n]" },
    ]);
    expect(readArguments("not json")).toEqual([{ name: "", value: "not json" }]);
    expect(readArguments(null)).toEqual([]);
  });
});

describe("parseEvent", () => {
  it("reads places and refuses what is no event", () => {
    expect(parseEvent("12.3", '{"type":"text","text":"a"}')).toMatchObject({ seq: 12, piece: 3, atUnixMs: null });
    expect(parseEvent("12", '{"type":"said","text":"a","at_unix_ms":5}')).toMatchObject({ seq: 12, piece: 0, atUnixMs: 5 });
    for (const [id, data] of [
      ["", '{"type":"text"}'],
      ["1", "{"],
      ["1", "null"],
      ["1", '{"type":"constructor"}'],
    ] as const) {
      expect(parseEvent(id, data)).toBeNull();
    }
  });
});
