import { describe, expect, it } from "vitest";
import { readHunks, readName, readPatch, searchedTexts, sideBySide } from "./patch";

const PATCH = `diff --git a/src/a b.txt b/src/a b.txt
index 1..2 100644
--- a/src/a b.txt\t
+++ b/src/a b.txt\t
@@ -1,4 +1,4 @@ fn main
 one
--- two
-three
+++ two
+drei
 four
\\ No newline at end of file
diff --git a/old b/new
similarity index 90%
rename from old
rename to new
old mode 100644
new mode 100755
diff --git "a/\\303\\244.txt" "b/\\303\\244.txt"
new file mode 100644
--- /dev/null
+++ "b/\\303\\244.txt"
@@ -0,0 +1 @@
+x
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-x
diff --git a/p.png b/p.png
GIT binary patch
literal 3
`;

describe("readPatch", () => {
  const files = readPatch(PATCH);

  it("finds every file, by its name and what became of it", () => {
    expect(files.map((file) => [file.path, file.kind])).toEqual([
      ["src/a b.txt", "modified"],
      ["new", "renamed"],
      ["ä.txt", "added"],
      ["gone", "deleted"],
      ["p.png", "modified"],
    ]);
    expect(files[1]).toMatchObject({ source: "old", modes: "mode 100644 → 100755" });
    expect(files[4]?.isBinary).toBe(true);
  });

  it("numbers lines, and takes lines that look like headers for what they are", () => {
    expect(files[0]?.hunks[0]?.lines).toEqual([
      { kind: "same", text: "one", before: 1, after: 1 },
      { kind: "removed", text: "-- two", before: 2, after: null },
      { kind: "removed", text: "three", before: 3, after: null },
      { kind: "added", text: "++ two", before: null, after: 2 },
      { kind: "added", text: "drei", before: null, after: 3 },
      { kind: "same", text: "four", before: 4, after: 4 },
    ]);
  });

  it("puts changed lines beside each other", () => {
    const rows = sideBySide(files[0]?.hunks[0]?.lines ?? []);
    expect(rows.map((row) => [row.left?.text ?? null, row.right?.text ?? null])).toEqual([
      ["one", "one"],
      ["-- two", "++ two"],
      ["three", "drei"],
      ["four", "four"],
    ]);
  });

  it("survives what is no patch, and a patch that is cut off", () => {
    expect(readPatch("")).toEqual([]);
    expect(readPatch("nothing\n@@ -1 +1 @@\n")).toEqual([]);
    for (let end = 0; end < PATCH.length; end += 7) readPatch(PATCH.slice(0, end));
  });
});

it("reads names as git quotes them", () => {
  expect(readName("plain")).toBe("plain");
  expect(readName('"a\\tb\\"c\\\\ü"')).toBe('a\tb"c\\ü');
});

describe("line ends and marks", () => {
  it("are signs only where the two sides differ, and hide nothing at the beginning of a file", () => {
    const same = readHunks(["@@ -1,2 +1,2 @@", " \ufeffa\r", "-b\r", "+c\r"]).hunks;
    expect(same[0]?.lines.map((line) => [line.text, line.hasCarriageReturn])).toEqual([
      ["\ufeffa", undefined],
      ["b", undefined],
      ["c", undefined],
    ]);
    expect(searchedTexts(same)).toEqual(["a", "b", "c"]);
    const mixed = readHunks(["@@ -5 +5 @@", "-b\r", "+\ufeffb"]).hunks;
    expect(mixed[0]?.lines.map((line) => [line.text, line.hasCarriageReturn])).toEqual([
      ["b", true],
      ["\ufeffb", undefined],
    ]);
    expect(searchedTexts(mixed)).toEqual(["b", "\ufeffb"]);
  });
});
