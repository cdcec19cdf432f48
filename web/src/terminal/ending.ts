// How a shell stands, and how its end is told.

/** How a shell is. `lost` is one that ended without a word of it. */
export type ShellState =
  | { kind: "connecting" }
  | { kind: "open" }
  | { kind: "ended"; text: string }
  | { kind: "lost"; text: string };

/** What a text message of the server says about the end. */
export function describeEnd(text: string): ShellState | null {
  let message: { exit?: { code: number | null; signal: number | null }; error?: { message?: unknown } };
  try {
    message = JSON.parse(text) as typeof message;
  } catch {
    return null;
  }
  if (message?.exit) {
    const { code, signal } = message.exit;
    return { kind: "ended", text: code === null ? `The shell was ended by signal ${signal}.` : `The shell ended with exit ${code}.` };
  }
  if (typeof message?.error?.message === "string") return { kind: "lost", text: `The shell was lost: ${message.error.message}.` };
  return null;
}

/** What the end of the connection says where no message did. */
export function describeClose(wasOpen: boolean, code: number): ShellState {
  if (!wasOpen) {
    return {
      kind: "lost",
      text: "No shell could be opened. The sandbox may be starting, stopped or gone, or too many terminals are open.",
    };
  }
  if (code === 1000) return { kind: "ended", text: "The shell was closed because nobody used it." };
  if (code === 1001) return { kind: "lost", text: "The server ended, and the shell with it." };
  return { kind: "lost", text: "The connection was cut, which ends the shell." };
}
