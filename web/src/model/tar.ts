// A folder that the user has chosen, as a tar archive. Nothing is read here: the archive is made of headers and of the
// files themselves, which the browser reads while it sends them.

const BLOCK = 512;
const MAX_NAME_BYTES = 100;

export interface TarFile {
  /** Below the folder, with slashes. */
  path: string;
  content: Blob;
  modifiedMs: number;
}

export interface FolderArchive {
  archive: Blob;
  files: number;
  /** Files of repositories, which the server takes from nobody. */
  leftOut: number;
}

/** The files of a chosen folder, without its own name and without repositories' own directories. */
export function packFolder(chosen: Iterable<File>): FolderArchive {
  const files: TarFile[] = [];
  let leftOut = 0;
  for (const file of chosen) {
    const path = file.webkitRelativePath.split("/").slice(1);
    if (path.some((name) => name.toLowerCase() === ".git")) {
      leftOut += 1;
      continue;
    }
    files.push({ path: path.join("/") || file.name, content: file, modifiedMs: file.lastModified });
  }
  return { archive: pack(files), files: files.length, leftOut };
}

/** A tar archive (POSIX pax) of files. */
export function pack(files: readonly TarFile[]): Blob {
  const encoder = new TextEncoder();
  const parts: BlobPart[] = [];
  const add = (kind: string, name: Uint8Array, content: Blob, modifiedMs: number) => {
    parts.push(header(kind, name, content.size, modifiedMs), content);
    const over = content.size % BLOCK;
    if (over) parts.push(new Uint8Array(BLOCK - over));
  };
  for (const { path, content, modifiedMs } of files) {
    const name = encoder.encode(path);
    if (name.length > MAX_NAME_BYTES) add("x", encoder.encode("pax"), new Blob([record(name)]), modifiedMs);
    add("0", name.subarray(0, MAX_NAME_BYTES), content, modifiedMs);
  }
  parts.push(new Uint8Array(2 * BLOCK));
  return new Blob(parts, { type: "application/x-tar" });
}

function header(kind: string, name: Uint8Array, size: number, modifiedMs: number): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(BLOCK);
  const put = (at: number, text: string) => {
    for (let index = 0; index < text.length; index += 1) block[at + index] = text.charCodeAt(index);
  };
  const octal = (at: number, digits: number, value: number) => put(at, Math.floor(value).toString(8).padStart(digits, "0"));
  block.set(name);
  octal(100, 7, 0o644);
  octal(108, 7, 0);
  octal(116, 7, 0);
  octal(124, 11, size);
  octal(136, 11, Math.max(0, modifiedMs / 1000));
  put(148, " ".repeat(8));
  put(156, kind);
  put(257, "ustar\u000000");
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(148, `${sum.toString(8).padStart(6, "0")}\u0000 `);
  return block;
}

/** An extended record with the path; its length counts its own digits. */
function record(path: Uint8Array): Uint8Array<ArrayBuffer> {
  const rest = " path=\n".length + path.length;
  let length = rest;
  while (length !== rest + String(length).length) length = rest + String(length).length;
  const start = new TextEncoder().encode(`${length} path=`);
  const bytes = new Uint8Array(length);
  bytes.set(start);
  bytes.set(path, start.length);
  bytes[length - 1] = 10;
  return bytes;
}
