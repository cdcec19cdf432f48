import { describe, expect, it } from "vitest";
import { decodeText } from "./bytes";
import { describeHidden, showSigns } from "./visible";
import { WARN } from "./visible-table";

const at = (code: number) => String.fromCodePoint(code);

describe("signs", () => {
  it("remove nothing, escape sequences neither", () => {
    expect(showSigns("rm -rf build \u001b]; evil; \u0007")).toBe("rm -rf build <ESC>]; evil; <BEL>");
    expect(showSigns("\u001b[31mred")).toBe("<ESC>[31mred");
  });

  it("stand for every range that hides, acts or reorders, at both its ends", () => {
    for (const [first, last] of WARN) {
      for (const code of [first, last]) {
        // Behind another sign no selector is in its place.
        expect(describeHidden([`${at(0x202e)}${at(code)}b`]), code.toString(16)).toMatch(/^2 hidden characters: /);
        expect(showSigns(`${at(0x202e)}${at(code)}b`)).not.toContain(at(code));
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

  it("are for marks that pile up, and not for those of a script", () => {
    expect(describeHidden([`o${at(0x301).repeat(300)}`])).toBe("292 hidden characters: U+0301");
    expect(describeHidden([`o${`${at(0x301).repeat(8)}${at(0xfe0f)}`.repeat(2)}`])).toMatch(/^8 hidden characters/);
    expect(describeHidden(["שָׁלוֹם", "ế"])).toBeNull();
  });

  it("are for bytes that are not UTF-8", () => {
    const text = decodeText(new Uint8Array([0x63, 0xe9, 0x0a, 0xef, 0xbb, 0xbf, 0xc3, 0xa4, 0xf0, 0x9f]));
    expect(showSigns(text)).toBe("c<0xE9>\n<BOM>ä<0xF0><0x9F>");
    expect(describeHidden([text])).toBe("4 hidden characters: 0xE9, BOM, 0xF0, 0x9F");
  });

  it("say how many and which", () => {
    expect(describeHidden(["a\u202eb", "c\u001b\u001bd"])).toBe("3 hidden characters: RLO, ESC");
  });
});
