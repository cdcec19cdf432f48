import { describe, expect, it } from "vitest";
import { describeHidden, showSigns } from "./visible";

const at = (code: number) => String.fromCodePoint(code);

describe("signs", () => {
  it("remove nothing, escape sequences neither", () => {
    expect(showSigns("rm -rf build \u001b]; evil; \u0007")).toBe("rm -rf build <ESC>]; evil; <BEL>");
    expect(showSigns("\u001b[31mred")).toBe("<ESC>[31mred");
  });

  it("stand for every range that hides, acts or reorders, at both its ends", () => {
    const ranges = [
      [0x00, 0x08], [0x0b, 0x1f], [0x7f, 0x9f], [0xad, 0xad], [0x34f, 0x34f], [0x61c, 0x61c], [0x115f, 0x1160], [0x17b4, 0x17b5],
      [0x180b, 0x180f], [0x200b, 0x200f], [0x2028, 0x202e], [0x2060, 0x206f], [0x2800, 0x2800], [0x3164, 0x3164], [0xfeff, 0xfeff],
      [0xffa0, 0xffa0], [0xfff0, 0xfffb], [0xfdd0, 0xfdef], [0x1bca0, 0x1bca3], [0x1d173, 0x1d17a], [0xe0000, 0xe0fff], [0x10fffe, 0x10ffff],
    ];
    for (const [first = 0, last = 0] of ranges) {
      for (const code of [first, last]) {
        expect(describeHidden([`a${at(code)}b`]), code.toString(16)).toMatch(/^1 hidden character: /);
        expect(showSigns(`a${at(code)}b`)).not.toContain(at(code));
      }
    }
    expect(describeHidden([`a${at(0xfe0f)}${at(0xfe0f)}b`])).toBe("1 hidden character: U+FE0F");
  });

  it("raise no banner for scripts and emoji that need joiners and selectors, nor for blanks", () => {
    for (const text of ["می\u200cخواهم", "👨\u200d👩\u200d👧", "🏳\ufe0f\u200d🌈", "❤\ufe0f", "葛\u{e0100}", "Bonjour\u00a0!", "a\r\nb\tc"]) {
      expect(describeHidden([text]), text).toBeNull();
    }
    expect(showSigns("Bonjour\u00a0!")).toBe("Bonjour<NBSP>!");
  });

  it("are for a carriage return that writes over a line", () => {
    expect(showSigns("rm -rf /\rls\r\nnext")).toBe("rm -rf /<CR>ls\r\nnext");
  });

  it("say how many and which", () => {
    expect(describeHidden(["a\u202eb", "c\u001b\u001bd"])).toBe("3 hidden characters: RLO, ESC");
  });
});
