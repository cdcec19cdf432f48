import { describe, expect, it } from "vitest";
import { cleanText, cutMiddle, formatBytes, formatDuration, oneLine, tail } from "./text";

describe("cleanText", () => {
  it("shows colours and titles", () => {
    expect(cleanText("\u001b[31mred\u001b[0m \u001b]0;title\u0007after")).toBe("<ESC>[31mred<ESC>[0m <ESC>]0;title<BEL>after");
  });

  it("shows what else would act or hide", () => {
    expect(cleanText("a\u001bc\u0000\u0008b")).toBe("a<ESC>c<NUL><BS>b");
    expect(cleanText("user\u202etxt.exe")).toBe("user<RLO>txt.exe");
    expect(cleanText("\u009b31m")).toBe("<CSI>31m");
  });

  it("loses no line that a carriage return would write over", () => {
    expect(cleanText("rm -rf /\rls\r\nnext\tcolumn")).toBe("rm -rf /<CR>ls\nnext\tcolumn");
  });
});

describe("bounds", () => {
  it("keeps both ends of a long text and says how much is missing", () => {
    const cut = cutMiddle(`${"a".repeat(100)}${"b".repeat(100)}`, 20);
    expect(cut.left).toBe(180);
    expect(cut.text.startsWith("aaaaaaaaaa\n")).toBe(true);
    expect(cut.text.endsWith("\nbbbbbbbbbb")).toBe(true);
    expect(cut.text).toContain("180 characters");
    expect(cutMiddle("short", 20)).toEqual({ text: "short", left: 0 });
  });

  it("keeps the end of output at a line", () => {
    expect(tail("one\ntwo\nthree", 8)).toBe("three");
    expect(tail("short", 8)).toBe("short");
  });

  it("makes one line", () => {
    expect(oneLine("  a\n\nb\tc ", 10)).toBe("a b c");
    expect(oneLine("x".repeat(50), 10)).toBe(`${"x".repeat(9)}…`);
  });
});

it("tells sizes and times in words", () => {
  expect([0, 1023, 1024, 52428800].map(formatBytes)).toEqual(["0 B", "1023 B", "1.0 KiB", "50 MiB"]);
  expect([0, 94, 1500, 61_000, 3_660_000].map(formatDuration)).toEqual(["0 ms", "94 ms", "1.5 s", "1 min 1 s", "1 h 1 min"]);
});
