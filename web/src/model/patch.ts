// Reads a patch in git's form into files, hunks and lines.

export interface DiffLine {
  kind: "same" | "added" | "removed";
  text: string;
  /** Line numbers before and after. */
  before: number | null;
  after: number | null;
  /** True if the line ends as on Windows, and other lines of the change do not. */
  hasCarriageReturn?: boolean;
}

export interface Hunk {
  header: string;
  lines: DiffLine[];
}

export interface FileDiff {
  path: string;
  /** Where a renamed file was. */
  source: string | null;
  kind: "added" | "modified" | "deleted" | "renamed";
  isBinary: boolean;
  modes: string | null;
  hunks: Hunk[];
}

const ESCAPES: Record<string, number> = { a: 7, b: 8, t: 9, n: 10, v: 11, f: 12, r: 13, '"': 34, "\\": 92 };

/** A name as git writes it: as it is, or quoted with escapes of bytes. */
export function readName(written: string): string {
  if (!written.startsWith('"')) return written;
  const bytes: number[] = [];
  const text = written.slice(1, written.lastIndexOf('"'));
  const encoder = new TextEncoder();
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at] ?? "";
    if (character !== "\\") {
      const whole = String.fromCodePoint(text.codePointAt(at) ?? 0);
      bytes.push(...encoder.encode(whole));
      at += whole.length - 1;
      continue;
    }
    const octal = /^[0-7]{3}/.exec(text.slice(at + 1));
    if (octal) {
      bytes.push(Number.parseInt(octal[0], 8));
      at += 3;
    } else {
      bytes.push(ESCAPES[text[at + 1] ?? ""] ?? 63);
      at += 1;
    }
  }
  return new TextDecoder().decode(new Uint8Array(bytes));
}

function nameAfter(line: string, prefix: string): string | null {
  const name = readName(line.slice(prefix.length).replace(/\t$/, ""));
  return name === "/dev/null" ? null : name.replace(/^[ab]\//, "");
}

/** The name in `diff --git a/NAME b/NAME`, which is the same twice where nothing was renamed. */
function nameOfHeader(line: string): string {
  const rest = line.slice("diff --git ".length);
  const quoted = /^"(?:[^"\\]|\\.)*"/.exec(rest);
  if (quoted) return readName(quoted[0]).replace(/^a\//, "");
  return rest.slice(2, 2 + Math.max(0, (rest.length - 5) / 2));
}

/** Reads hunks: of a file in a patch, or alone as a tool's diff. */
export function readHunks(lines: readonly string[], from = 0): { hunks: Hunk[]; next: number } {
  const hunks: Hunk[] = [];
  let at = from;
  while (at < lines.length) {
    const header = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(lines[at] ?? "");
    if (!header) break;
    let before = Number(header[1]);
    let after = Number(header[3]);
    let oldLeft = Number(header[2] ?? 1);
    let newLeft = Number(header[4] ?? 1);
    const hunk: Hunk = { header: lines[at] ?? "", lines: [] };
    at += 1;
    // Counts end a hunk: a removed line `-- x` looks like the header of another file.
    while (at < lines.length && (oldLeft > 0 || newLeft > 0 || lines[at]?.startsWith("\\"))) {
      const line = lines[at] ?? "";
      const text = line.slice(1);
      if (line.startsWith("+")) {
        hunk.lines.push({ kind: "added", text, before: null, after });
        after += 1;
        newLeft -= 1;
      } else if (line.startsWith("-")) {
        hunk.lines.push({ kind: "removed", text, before, after: null });
        before += 1;
        oldLeft -= 1;
      } else if (line.startsWith(" ") || line === "") {
        hunk.lines.push({ kind: "same", text, before, after });
        before += 1;
        after += 1;
        oldLeft -= 1;
        newLeft -= 1;
      } else if (!line.startsWith("\\")) {
        break;
      }
      at += 1;
    }
    takeLineEnds(hunk.lines);
    hunks.push(hunk);
  }
  return { hunks, next: at };
}

/** Takes the carriage returns of line ends out of the texts, and marks them where the two sides differ in them. */
function takeLineEnds(lines: DiffLine[]): void {
  const changed = lines.filter((line) => line.kind !== "same");
  const count = changed.filter((line) => line.text.endsWith("\r")).length;
  const isMixed = count > 0 && count < changed.length;
  for (const line of lines) {
    if (!line.text.endsWith("\r")) continue;
    line.text = line.text.slice(0, -1);
    if (isMixed && line.kind !== "same") line.hasCarriageReturn = true;
  }
}

/** The texts of hunks that are searched for hidden characters. A byte order mark at the beginning of a file is none. */
export function searchedTexts(hunks: readonly Hunk[]): string[] {
  return hunks.flatMap((hunk) =>
    hunk.lines.map((line) => {
      const isFirst = line.before === 1 || line.after === 1;
      return isFirst && line.text.startsWith("\ufeff") ? line.text.slice(1) : line.text;
    }),
  );
}

export function readPatch(patch: string): FileDiff[] {
  const lines = patch.split("\n");
  const files: FileDiff[] = [];
  let file: FileDiff | null = null;
  let oldMode = "";
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at] ?? "";
    if (line.startsWith("diff --git ")) {
      file = { path: nameOfHeader(line), source: null, kind: "modified", isBinary: false, modes: null, hunks: [] };
      files.push(file);
    } else if (!file) {
      continue;
    } else if (line.startsWith("new file mode ")) {
      file.kind = "added";
      if (!line.endsWith("100644")) file.modes = `mode ${line.slice(14)}`;
    } else if (line.startsWith("deleted file mode ")) {
      file.kind = "deleted";
    } else if (line.startsWith("old mode ")) {
      oldMode = line.slice(9);
    } else if (line.startsWith("new mode ")) {
      file.modes = `mode ${oldMode} → ${line.slice(9)}`;
    } else if (line.startsWith("rename from ")) {
      file.kind = "renamed";
      file.source = readName(line.slice(12));
    } else if (line.startsWith("rename to ")) {
      file.path = readName(line.slice(10));
    } else if (line.startsWith("+++ ")) {
      file.path = nameAfter(line, "+++ ") ?? file.path;
    } else if (line.startsWith("--- ") && file.kind === "deleted") {
      file.path = nameAfter(line, "--- ") ?? file.path;
    } else if (line.startsWith("GIT binary patch") || line.startsWith("Binary files ")) {
      file.isBinary = true;
    } else if (line.startsWith("@@ ")) {
      const read = readHunks(lines, at);
      file.hunks.push(...read.hunks);
      at = Math.max(at, read.next - 1);
    }
  }
  return files;
}

export interface Row {
  left: DiffLine | null;
  right: DiffLine | null;
}

/** The lines of a hunk side by side: removed ones beside the added ones that follow them. */
export function sideBySide(lines: readonly DiffLine[]): Row[] {
  const rows: Row[] = [];
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    if (!line) break;
    if (line.kind === "same") {
      rows.push({ left: line, right: line });
      at += 1;
      continue;
    }
    const removed: DiffLine[] = [];
    const added: DiffLine[] = [];
    for (let next = lines[at]; next && next.kind !== "same"; next = lines[at]) {
      // A removal after additions begins the next pair.
      if (next.kind === "removed" && added.length) break;
      (next.kind === "removed" ? removed : added).push(next);
      at += 1;
    }
    for (let index = 0; index < Math.max(removed.length, added.length); index += 1) {
      rows.push({ left: removed[index] ?? null, right: added[index] ?? null });
    }
  }
  return rows;
}
