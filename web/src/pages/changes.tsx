// What a session changed: file by file, to look at, to take over, or to take along as a patch.
import { useMemo, useState } from "react";
import {
  ApiError,
  type Change,
  type Changes,
  type ConflictChoice,
  get,
  type LastApply,
  post,
  readBounded,
  send,
  type Session,
  sessionUrl,
} from "../api/client";
import { withBase } from "../base";
import { useAction, useIsWide, usePolled } from "../model/hooks";
import { type FileDiff, readPatch, searchedTexts } from "../model/patch";
import { isActive } from "../model/stream";
import { cleanText } from "../model/text";
import { describeHidden } from "../model/visible";
import { ConflictSection } from "../parts/conflicts";
import { DiffView } from "../parts/diff-view";
import { Empty, ErrorBox, Loading } from "../parts/states";

/** Bytes of the patch that this page reads. */
const MAX_PATCH_BYTES = 64 << 20;
/** Files that are shown before a click. */
const MAX_FILES = 300;
/** Changed lines up to which a file is shown open. */
const OPEN_LINES = 400;
/** How often list and patch are read before they are shown as two moments. */
const MAX_READS = 3;

interface Loaded {
  list: Changes;
  files: FileDiff[];
  isCut: boolean;
  /** True if list and patch are of one moment. Only then can they be applied. */
  isOneMoment: boolean;
}

async function load(path: string, signal: AbortSignal): Promise<Loaded> {
  for (let reads = 1; ; reads += 1) {
    const list = await get<Changes>(`${path}?format=json`, signal);
    const answer = await send(path, { signal });
    // A proxy that compresses makes a weak tag of it.
    const digest = answer.headers.get("etag")?.replace(/^W\//, "").replaceAll('"', "");
    const patch = await readBounded(answer, MAX_PATCH_BYTES, true);
    // An agent at work may have changed files between the two answers.
    const isOneMoment = digest === list.digest;
    if (isOneMoment || reads === MAX_READS) return { list, files: readPatch(patch.text), isCut: patch.isCut, isOneMoment };
  }
}

export function ChangesView({ session }: { session: Session }) {
  const loaded = usePolled(sessionUrl(session.id, "/diff"), null, load);
  const isWide = useIsWide();
  const [layout, setLayout] = useState<"split" | "unified" | null>(null);
  const [left, setLeft] = useState<ReadonlySet<string>>(new Set());
  const [choices, setChoices] = useState<Readonly<Record<string, ConflictChoice>>>({});
  const [maxFiles, setMaxFiles] = useState(MAX_FILES);
  const action = useAction();
  const byPath = useMemo(() => new Map(loaded.data?.files.map((file) => [file.path, file])), [loaded.data]);

  if (!loaded.data) {
    if (!loaded.error) return <Loading what="the changes" />;
    return <ErrorBox error={loaded.error} onRetry={loaded.reload} />;
  }
  const { list, isCut, isOneMoment } = loaded.data;
  const isSplit = isWide && layout !== "unified";
  const stats = new Map(list.files.map((file) => [file.path, file]));
  // The sandbox's versions of conflicts stand among these, not among the changes.
  const beside = new Set(list.conflicts.map((conflict) => conflict.theirs));
  const changes = list.changes.filter((change) => !beside.has(change.path));
  const decided = [...changes, ...list.conflicts].map((one) => one.path);
  const chosen = decided.filter((path) => !left.has(path));
  const added = list.files.reduce((sum, file) => sum + file.insertions, 0);
  const removed = list.files.reduce((sum, file) => sum + file.deletions, 0);
  const apply = () =>
    action.run(async () => {
      // Without paths everything is taken over, also what this page does not name exactly.
      const paths = left.size ? { paths: chosen } : {};
      try {
        await post(sessionUrl(session.id, "/apply"), { ...paths, conflicts: choices, digest: list.digest });
      } catch (error) {
        // What is shown is old. The error stays above what is there now.
        if (error instanceof ApiError && error.code === "changed") loaded.reload();
        throw error;
      }
      setLeft(new Set());
      setChoices({});
      loaded.reload();
    });
  const choose = (path: string, isChosen: boolean) => {
    const next = new Set(left);
    if (isChosen) next.delete(path);
    else next.add(path);
    setLeft(next);
  };

  return (
    <div className="grid grid-cols-[minmax(0,1fr)] gap-4">
      {list.last_apply ? <LastApplyBox last={list.last_apply} /> : null}
      {loaded.error ? <ErrorBox error={loaded.error} onRetry={loaded.reload} /> : null}
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2">
        <p className="text-sm">
          <strong>{changes.length}</strong> {changes.length === 1 ? "path" : "paths"} changed{" "}
          <span className="whitespace-nowrap">
            <span className="text-good">+{added}</span> <span className="text-bad">−{removed}</span>
            <span className="sr-only"> lines added and removed</span>
          </span>
          {isActive(session.state) ? <span className="text-muted"> so far; the agent still works</span> : null}
        </p>
        <div className="ml-auto flex flex-wrap items-center gap-2">
          <button type="button" className="button" onClick={loaded.reload}>
            Refresh
          </button>
          {isWide && changes.length ? (
            <button type="button" className="button" aria-pressed={isSplit} onClick={() => setLayout(isSplit ? "unified" : "split")}>
              Side by side
            </button>
          ) : null}
          {list.changes.length ? (
            <a className="button" href={withBase(sessionUrl(session.id, "/diff"))} download={`${session.id}.patch`}>
              Download patch
            </a>
          ) : null}
          {session.sandbox ? (
            <a className="button" href={withBase(sessionUrl(session.id, "/workspace"))} download={`${session.id}.tar.gz`}>
              Download workspace
            </a>
          ) : null}
        </div>
      </div>
      {decided.length === 0 ? (
        <Empty title="No changes">
          {session.placement === "local" ? "The session's files are those of the project." : "The files of the sandbox are those of the project."}
        </Empty>
      ) : !session.takes_changes ? (
        <p className="card p-3 text-sm text-muted">
          {session.workspace && "upload" in session.workspace
            ? "The session began with an upload, which stays as it came. Take the changes along as a patch, or the workspace with all its files."
            : "What the session began with takes no changes back. Take them along as a patch, or the workspace with all its files."}
        </p>
      ) : (
        <div className="card flex flex-wrap items-center gap-3 p-3">
          <button type="button" className="button button-main" disabled={action.isBusy || !isOneMoment || chosen.length === 0} onClick={apply}>
            {action.isBusy ? "Applying…" : left.size ? `Apply ${chosen.length} of ${decided.length}` : "Apply all"}
          </button>
          <p className="text-sm text-muted">
            {isOneMoment
              ? "Changes go into the project that the session began with. Until then its files stay as they are."
              : "Files changed while they were read. Refresh before you apply."}
          </p>
        </div>
      )}
      {action.error ? <ErrorBox error={action.error} /> : null}
      {list.refused.length ? (
        <section aria-label="Refused" className="rounded-lg border border-warn bg-warn-soft p-3 text-sm">
          <h2 className="font-semibold text-warn">{list.refused.length} cannot come back</h2>
          <ul className="mt-1 grid gap-1">
            {list.refused.slice(0, 50).map((refused) => (
              <li key={refused.path} className="wrap-anywhere">
                <span className="font-mono">{cleanText(refused.path)}</span>: {refused.reason.replaceAll("-", " ").replaceAll("_", " ")}
              </li>
            ))}
          </ul>
        </section>
      ) : null}
      {list.conflicts.length ? (
        <ConflictSection
          session={session}
          conflicts={list.conflicts}
          choices={choices}
          left={left}
          moment={list.digest}
          onChoose={session.takes_changes ? choose : null}
          onChoice={(path, choice) => setChoices({ ...choices, [path]: choice })}
        />
      ) : null}
      {changes.slice(0, maxFiles).map((change) => (
        <FileCard
          key={change.path}
          change={change}
          diff={byPath.get(change.path) ?? null}
          stat={stats.get(change.path) ?? null}
          isChosen={!left.has(change.path)}
          isSplit={isSplit}
          isCut={isCut}
          onChoose={session.takes_changes ? choose : null}
        />
      ))}
      {changes.length > maxFiles ? (
        <p className="text-sm text-muted">
          {changes.length - maxFiles} more paths.{" "}
          <button type="button" className="link" onClick={() => setMaxFiles(Infinity)}>
            Show all
          </button>
        </p>
      ) : null}
    </div>
  );
}

const KINDS = {
  added: { label: "added", style: "text-good" },
  modified: { label: "modified", style: "text-accent" },
  deleted: { label: "deleted", style: "text-bad" },
  renamed: { label: "renamed", style: "text-warn" },
};

interface FileCardProps {
  change: Change;
  diff: FileDiff | null;
  stat: Changes["files"][number] | null;
  isChosen: boolean;
  isSplit: boolean;
  isCut: boolean;
  /** Without it nothing can be applied, and so nothing be chosen. */
  onChoose: ((path: string, isChosen: boolean) => void) | null;
}

function FileCard({ change, diff, stat, isChosen, isSplit, isCut, onChoose }: FileCardProps) {
  const path = cleanText(change.path);
  const hidden = useMemo(
    () => describeHidden([change.path, change.source ?? "", ...searchedTexts(diff?.hunks ?? [])]),
    [change, diff],
  );
  const kind = KINDS[change.kind];
  const isLong = (stat?.insertions ?? 0) + (stat?.deletions ?? 0) > OPEN_LINES;
  const [isOpen, setOpen] = useState(!isLong);
  // A path that is not UTF-8 cannot be named in a request; it goes with all the others.
  const isNamed = change.path_b64 === undefined;
  return (
    <section aria-label={path} className="card overflow-hidden">
      <div className="flex items-center gap-3 bg-sunken px-3 py-2 text-sm">
        {onChoose ? (
          <input
            type="checkbox"
            className="size-4 shrink-0 accent-accent"
            aria-label={`Apply ${path}`}
            checked={isChosen}
            disabled={!isNamed}
            onChange={(event) => onChoose(change.path, event.target.checked)}
          />
        ) : null}
        <button
          type="button"
          aria-expanded={isOpen}
          className="flex min-w-0 flex-1 flex-wrap items-center gap-x-2 rounded-sm text-left"
          onClick={() => setOpen(!isOpen)}
        >
          <span aria-hidden="true" className={`text-muted ${isOpen ? "rotate-90" : ""}`}>
            ▸
          </span>
          <span className="font-mono font-medium wrap-anywhere">
            {change.source ? `${cleanText(change.source)} → ` : ""}
            {path}
          </span>
          <span className={`text-xs ${kind.style}`}>{kind.label}</span>
          {hidden ? <span className="text-xs font-semibold text-bad">{hidden}</span> : null}
          {change.flags.map((flag) => (
            <span key={flag} className="text-xs font-semibold text-warn">
              {flag.replaceAll("-", " ").replaceAll("_", " ")}
            </span>
          ))}
        </button>
        {stat && !stat.is_binary ? (
          <span className="font-mono text-xs whitespace-nowrap">
            <span className="text-good">+{stat.insertions}</span> <span className="text-bad">−{stat.deletions}</span>
          </span>
        ) : null}
      </div>
      {isOpen ? (
        <div className="border-t border-line">
          {diff?.modes ? <p className="px-3 py-2 text-sm text-muted">{diff.modes}</p> : null}
          {diff?.hunks.length ? (
            <DiffView hunks={diff.hunks} isSplit={isSplit && change.kind !== "added" && change.kind !== "deleted"} label={`Diff of ${path}`} />
          ) : (
            <p className="px-3 py-2 text-sm text-muted">
              {diff?.isBinary || stat?.is_binary
                ? "A binary file."
                : diff
                  ? "No lines changed."
                  : isCut
                    ? "The patch is too long to be shown here; download it to see this file."
                    : "Nothing of it is shown as lines."}
            </p>
          )}
        </div>
      ) : null}
    </section>
  );
}

/** The outcome of the last Apply, until the next one. */
function LastApplyBox({ last }: { last: LastApply }) {
  const { counts, conflicts } = last;
  return (
    <div role="status" className={`rounded-lg border p-3 text-sm ${counts.conflicts ? "border-warn bg-warn-soft" : "border-good bg-good-soft"}`}>
      <p className="font-medium">
        <span aria-hidden="true">{counts.conflicts ? "! " : "✓ "}</span>
        {counts.applied} {counts.applied === 1 ? "path was" : "paths were"} applied
        {counts.already_there ? `, ${counts.already_there} were there already` : ""}
        {counts.conflicts ? `, ${counts.conflicts} in conflict` : ""}
        {counts.refused ? `, ${counts.refused} refused` : ""}
        {", "}
        <time dateTime={new Date(last.at_unix_ms).toISOString()}>{new Date(last.at_unix_ms).toLocaleString()}</time>.
      </p>
      {conflicts.length ? (
        <ul className="mt-2 grid gap-1">
          {conflicts.map((conflict) => (
            <li key={conflict.path} className="wrap-anywhere">
              <span className="font-mono">{cleanText(conflict.path)}</span>
              {conflict.marked ? ": both versions are in the file, between markers" : null}
              {conflict.theirs ? (
                <>
                  : the session's version is at <span className="font-mono">{cleanText(conflict.theirs)}</span>
                </>
              ) : null}
            </li>
          ))}
          {counts.conflicts > conflicts.length ? <li>and {counts.conflicts - conflicts.length} more</li> : null}
        </ul>
      ) : null}
    </div>
  );
}
