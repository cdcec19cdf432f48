import { cleanup, render } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import { EMPTY, reduceAll } from "../model/conversation";
import { CallCard } from "./call-card";
import { Prose } from "./prose";
import { StateBadge } from "./states";

afterEach(cleanup);

const HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script> [link](javascript:alert(3)) \u001b[31mred';

describe("what others wrote", () => {
  it("stays text in words", () => {
    const { container } = render(<Prose text={`${HOSTILE}\n\n\`\`\`html\n${HOSTILE}\n\`\`\`\n\n- ${HOSTILE}\n- **b** \`c\``} />);
    expect(container.querySelector("img, script, a, iframe")).toBeNull();
    expect(container.textContent).toContain('<img src=x onerror="alert(1)">');
    expect(container.querySelector("pre")?.textContent).toContain("<script>");
    expect(container.querySelector("strong")?.textContent).toBe("b");
    expect(container.querySelectorAll("li")).toHaveLength(2);
  });

  it("stays text in a tool's card", () => {
    const state = reduceAll(EMPTY, [
      { seq: 1, piece: 0, atUnixMs: 1, event: { type: "call_started", id: "c", tool: HOSTILE, arguments: { [HOSTILE]: HOSTILE } } },
      {
        seq: 2,
        piece: 0,
        atUnixMs: 2,
        event: { type: "call_finished", id: "c", tool: "", text: HOSTILE, is_error: true, facts: {}, diff: `@@ -1 +1 @@\n-${HOSTILE}\n+b`, wall_ms: 3 },
      },
    ]);
    const call = state.entries[0];
    if (call?.kind !== "call") throw new Error("no call");
    const { container } = render(<CallCard call={call} />);
    expect(container.querySelector("img, script, a, iframe")).toBeNull();
    expect(container.textContent).not.toContain("\u001b");
    expect(container.querySelector("details")?.open).toBe(true);
    expect(container.textContent).toContain("Failed");
  });
});

describe("StateBadge", () => {
  it("says every state in a word", () => {
    const words = ["queued", "running", "interrupted", "completed", "stopped_by_limit", "aborted", "lost", "failed"].map((state) => {
      const { container } = render(<StateBadge state={state} />);
      return container.textContent?.replace(/^[^A-Za-z]+/, "");
    });
    expect(new Set(words).size).toBe(8);
    expect(words.every((word) => word && !word.includes("_"))).toBe(true);
  });
});
