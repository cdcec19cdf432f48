// The events of a session, as the server streams them. Kinds and fields are only ever added.

export type Part =
  | { kind: "text"; text: string }
  | { kind: "reasoning"; text: string }
  | { kind: "call"; id: string; name: string; arguments: unknown }
  | { kind: "signature" | "opaque" };

export type SessionEvent =
  | { type: "started"; task: string; model: string; placement: string; sandbox: string | null; system: string }
  | { type: "resumed"; model: string }
  | { type: "said"; text: string }
  | { type: "turn_started"; turn: number }
  | { type: "text"; text: string }
  | { type: "reasoning"; text: string }
  | { type: "call_written"; tool: string; bytes: number }
  | { type: "retrying"; attempt: number; wait_ms: number; reason: string }
  | { type: "answered"; turn: number; parts: Part[]; cost_usd: number | null }
  | { type: "call_started"; id: string; tool: string; arguments: unknown; server?: { name: string } }
  | { type: "tool_output"; id: string; text: string }
  | {
      type: "call_finished";
      id: string;
      tool: string;
      text: string;
      is_error: boolean;
      facts: Record<string, unknown>;
      images?: unknown[];
      diff?: string;
      wall_ms: number;
    }
  | { type: "pruned"; results: number; tokens: number }
  | { type: "compacted"; summary: string; messages: number; tokens: number }
  | { type: "not_compacted"; reason: string }
  | { type: "sandbox_stopped"; sandbox: string; reason: string }
  | { type: "ended"; ending: string; message: string; turns: number; cost_usd: number | null }
  | { type: "queued"; position?: number }
  | { type: "notice"; notice: string; message: string }
  | { type: "approval_asked"; approval: { id: string; tool: string; summary: string; arguments: unknown } }
  | { type: "approval_answered"; id: string; answer: string }
  | { type: "dropped"; reason: string };

/** An event with its place: `seq` counts the events of the log, `piece` what came since without being kept. */
export interface PlacedEvent {
  seq: number;
  piece: number;
  atUnixMs: number | null;
  event: SessionEvent;
}

/** Every kind that the stream names. */
export const EVENT_TYPES: readonly SessionEvent["type"][] = [
  "started",
  "resumed",
  "said",
  "turn_started",
  "text",
  "reasoning",
  "call_written",
  "retrying",
  "answered",
  "call_started",
  "tool_output",
  "call_finished",
  "pruned",
  "compacted",
  "not_compacted",
  "sandbox_stopped",
  "ended",
  "queued",
  "notice",
  "approval_asked",
  "approval_answered",
  "dropped",
];

/** Reads one event of the stream; `null` for what is no event of a known form. */
export function parseEvent(lastEventId: string, data: string): PlacedEvent | null {
  const id = /^(\d+)(?:\.(\d+))?$/.exec(lastEventId);
  if (!id) return null;
  try {
    const value: unknown = JSON.parse(data);
    if (typeof value !== "object" || value === null) return null;
    const { type, at_unix_ms } = value as { type?: unknown; at_unix_ms?: unknown };
    if (!EVENT_TYPES.includes(type as SessionEvent["type"])) return null;
    return {
      seq: Number(id[1]),
      piece: Number(id[2] ?? 0),
      atUnixMs: typeof at_unix_ms === "number" ? at_unix_ms : null,
      event: value as SessionEvent,
    };
  } catch {
    return null;
  }
}
