import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { pack, packFolder } from "./tar";

/** The bytes of a blob, also where the test's own DOM has an older one. */
function bytesOf(blob: Blob): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(new Uint8Array(reader.result as ArrayBuffer));
    reader.onerror = () => reject(reader.error);
    reader.readAsArrayBuffer(blob);
  });
}

function chosen(path: string, content: string): File {
  const file = new File([content], path.split("/").at(-1) ?? "", { lastModified: 1_700_000_000_000 });
  Object.defineProperty(file, "webkitRelativePath", { value: path });
  return file;
}

describe("a folder as an archive", () => {
  it("is what tar unpacks", async () => {
    const long = `${"d".repeat(90)}/ü${"n".repeat(89)}`;
    const files = [
      { path: "a.txt", content: new Blob(["one"]), modifiedMs: 1_700_000_000_000 },
      { path: "sub/empty", content: new Blob([]), modifiedMs: 0 },
      { path: "sub/full", content: new Blob(["x".repeat(512)]), modifiedMs: 0 },
      { path: long, content: new Blob(["two"]), modifiedMs: 0 },
    ];
    const dir = mkdtempSync(join(tmpdir(), "glovebox-tar-"));
    try {
      writeFileSync(join(dir, "archive.tar"), await bytesOf(pack(files)));
      const unpacked = spawnSync("tar", ["-xf", "archive.tar"], { cwd: dir, encoding: "utf8" });
      expect(unpacked.stderr).toBe("");
      expect(unpacked.status).toBe(0);
      const read = (path: string) => readFileSync(join(dir, path), "utf8");
      expect([read("a.txt"), read("sub/empty"), read("sub/full").length, read(long)]).toEqual(["one", "", 512, "two"]);
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  it("leaves the folder's own name and repositories out", async () => {
    const folder = packFolder([chosen("app/src/main.rs", "fn main() {}"), chosen("app/.git/config", "x"), chosen("app/sub/.GIT/HEAD", "x"), chosen("app/.gitignore", "y")]);
    expect([folder.files, folder.leftOut]).toEqual([2, 2]);
    const text = new TextDecoder().decode(await bytesOf(folder.archive));
    expect(text).toContain("src/main.rs");
    expect(text).not.toContain("app/");
    expect(folder.archive.size).toBe(4 * 512 + 2 * 512);
  });
});
