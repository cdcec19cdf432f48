// The files of a session's workspace: directories as lists, files as text.
import { type BoundedText, type Directory, fileUrl, readBounded, send, type Session } from "../api/client";
import { withBase } from "../base";
import { usePolled } from "../model/hooks";
import { cleanProse, cleanText, formatBytes } from "../model/text";
import { Empty, ErrorBox, Loading } from "../parts/states";
import { Link } from "../router";

/** Bytes of a file that are shown. */
const MAX_FILE_BYTES = 256 << 10;

type Found = { kind: "directory"; list: Directory } | { kind: "file"; content: BoundedText };

/** A directory or the beginning of a file: the server's answer tells which. */
async function load(path: string, signal: AbortSignal): Promise<Found> {
  const response = await send(path, { signal });
  if (response.headers.get("content-type")?.startsWith("application/json")) {
    return { kind: "directory", list: (await response.json()) as Directory };
  }
  return { kind: "file", content: await readBounded(response, MAX_FILE_BYTES) };
}

export function FilesView({ session, path }: { session: Session; path: string }) {
  const url = fileUrl(session.id, path);
  const found = usePolled(url, null, load);
  const base = `/sessions/${encodeURIComponent(session.id)}/files`;
  return (
    <div className="grid grid-cols-[minmax(0,1fr)] gap-3">
      <div className="flex flex-wrap items-center gap-2">
        <Crumbs base={base} path={path} />
        <div className="ml-auto flex gap-2">
          {found.data?.kind === "file" ? (
            <a className="button" href={withBase(url)} download={path.split("/").at(-1)}>
              Download
            </a>
          ) : null}
          <button type="button" className="button" onClick={found.reload}>
            Refresh
          </button>
        </div>
      </div>
      {found.error ? <ErrorBox error={found.error} onRetry={found.reload} /> : null}
      {!found.data && !found.error ? <Loading what="the files" /> : null}
      {found.data?.kind === "directory" ? <Listing list={found.data.list} base={base} path={path} /> : null}
      {found.data?.kind === "file" ? <Content content={found.data.content} /> : null}
    </div>
  );
}

function join(base: string, path: string): string {
  return path === "" ? base : `${base}/${path.split("/").map(encodeURIComponent).join("/")}`;
}

function Crumbs({ base, path }: { base: string; path: string }) {
  const parts = path === "" ? [] : path.split("/");
  return (
    <nav aria-label="Path" className="min-w-0">
      <ol className="flex flex-wrap items-center gap-1 font-mono text-sm">
        <li>
          <Link href={base} className="link" aria-current={parts.length === 0 ? "page" : undefined}>
            workspace
          </Link>
        </li>
        {parts.map((part, index) => (
          <li key={index} className="flex items-center gap-1 wrap-anywhere">
            <span aria-hidden="true" className="text-muted">
              /
            </span>
            <Link href={join(base, parts.slice(0, index + 1).join("/"))} className="link" aria-current={index === parts.length - 1 ? "page" : undefined}>
              {cleanText(part)}
            </Link>
          </li>
        ))}
      </ol>
    </nav>
  );
}

/** What follows a name, as `ls -F` has it. */
const MARKS: Record<string, string> = { directory: "/", link: "@" };

function Listing({ list, base, path }: { list: Directory; base: string; path: string }) {
  if (list.entries.length === 0) return <Empty title="The directory is empty" />;
  const sorted = [...list.entries].sort((one, other) => Number(other.kind === "directory") - Number(one.kind === "directory"));
  return (
    <>
      <ul className="card divide-y divide-line overflow-hidden text-sm">
        {sorted.map((entry) => (
          <li key={entry.name}>
            <Link
              href={join(base, path === "" ? entry.name : `${path}/${entry.name}`)}
              className="flex items-center gap-3 px-4 py-2 -outline-offset-2 hover:bg-sunken"
            >
              <span className="min-w-0 flex-1 font-mono wrap-anywhere">
                {cleanText(entry.name)}
                <span aria-hidden="true" className="text-muted">
                  {MARKS[entry.kind]}
                </span>
              </span>
              <span className="text-xs whitespace-nowrap text-muted">{entry.kind === "file" ? formatBytes(entry.size) : entry.kind}</span>
            </Link>
          </li>
        ))}
      </ul>
      {list.is_cut ? <p className="text-sm text-muted">There are more entries than are listed.</p> : null}
    </>
  );
}

function Content({ content }: { content: BoundedText }) {
  if (content.isBinary) return <Empty title="A binary file">Download it to look at it.</Empty>;
  if (content.text === "") return <Empty title="The file is empty" />;
  const text = cleanProse(content.text);
  const lines = text.replace(/\n$/, "").split("\n");
  return (
    <div className="card overflow-hidden">
      <div tabIndex={0} role="group" aria-label="Content" className="flex overflow-x-auto font-mono text-sm">
        <pre aria-hidden="true" className="border-r border-line bg-sunken px-3 py-3 text-right text-muted select-none">
          {lines.map((_, index) => index + 1).join("\n")}
        </pre>
        <pre className="flex-1 px-4 py-3">{lines.join("\n")}</pre>
      </div>
      {content.isCut ? (
        <p className="border-t border-line px-4 py-2 text-sm text-muted">
          Only the first {formatBytes(MAX_FILE_BYTES)} are shown. Download the file to see the rest.
        </p>
      ) : null}
    </div>
  );
}
