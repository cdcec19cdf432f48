// Files that both the project and the session changed: both versions beside each other, and a choice for each file.
import { useState } from "react";
import { type Conflict, type ConflictChoice, readBounded, send, type Session, sessionUrl } from "../api/client";
import { withBase } from "../base";
import { usePolled } from "../model/hooks";
import { cleanText, formatBytes } from "../model/text";
import { describeHidden } from "../model/visible";
import { HiddenBanner, Shown } from "./shown";
import { ErrorBox, Loading } from "./states";

/** Bytes of one version that are read. */
const MAX_BYTES = 4 << 20;
/** Characters of one version that are shown before a click. */
const MAX_CHARS = 60_000;
/** Conflicts that are shown before a click. */
const MAX_CONFLICTS = 100;

const REASONS: Readonly<Record<string, string>> = {
  "changed-on-host": "changed on both sides",
  "added-on-host": "added on both sides",
  "deleted-on-host": "changed in the session, deleted in the project",
  "deleted-in-sandbox": "deleted in the session, changed in the project",
  "renamed-in-sandbox": "renamed in the session, changed in the project",
  "directory-not-empty": "the project's directory has other files",
  "special-on-host": "the project has a device, FIFO, socket or mount there",
  "not-a-directory-on-host": "a directory above it is none in the project",
};

interface ConflictSectionProps {
  session: Session;
  conflicts: readonly Conflict[];
  choices: Readonly<Record<string, ConflictChoice>>;
  left: ReadonlySet<string>;
  /** Digest of the moment that is shown: versions are read anew with the next one. */
  moment: string;
  /** Without it nothing can be applied, and so nothing be chosen. */
  onChoose: ((path: string, isChosen: boolean) => void) | null;
  onChoice: (path: string, choice: ConflictChoice) => void;
}

export function ConflictSection({ session, conflicts, choices, left, moment, onChoose, onChoice }: ConflictSectionProps) {
  const [max, setMax] = useState(MAX_CONFLICTS);
  return (
    <section aria-label="Conflicts" className="grid grid-cols-[minmax(0,1fr)] gap-2 rounded-lg border border-bad p-3 text-sm">
      <h2 className="font-semibold text-bad">Conflicts ({conflicts.length})</h2>
      {conflicts.slice(0, max).map((conflict) => (
        <ConflictCard
          key={conflict.path}
          session={session}
          conflict={conflict}
          choice={choices[conflict.path] ?? "beside"}
          isChosen={!left.has(conflict.path)}
          moment={moment}
          onChoose={onChoose}
          onChoice={onChoice}
        />
      ))}
      {conflicts.length > max ? (
        <p className="text-muted">
          {conflicts.length - max} more conflicts.{" "}
          <button type="button" className="link" onClick={() => setMax(Infinity)}>
            Show all
          </button>
        </p>
      ) : null}
    </section>
  );
}

interface ConflictCardProps {
  session: Session;
  conflict: Conflict;
  choice: ConflictChoice;
  isChosen: boolean;
  moment: string;
  onChoose: ((path: string, isChosen: boolean) => void) | null;
  onChoice: (path: string, choice: ConflictChoice) => void;
}

function ConflictCard({ session, conflict, choice, isChosen, moment, onChoose, onChoice }: ConflictCardProps) {
  const path = cleanText(conflict.path);
  const hidden = describeHidden([conflict.path]);
  const [isOpen, setOpen] = useState(false);
  // A path that is not UTF-8 cannot be named in a request; it goes with all the others, as usual.
  const isNamed = conflict.path_b64 === undefined;
  return (
    <section aria-label={path} className="card overflow-hidden">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-2 bg-sunken px-3 py-2">
        {onChoose ? (
          <input
            type="checkbox"
            className="size-4 shrink-0 accent-accent"
            aria-label={`Apply ${path}`}
            checked={isChosen}
            disabled={!isNamed}
            onChange={(event) => onChoose(conflict.path, event.target.checked)}
          />
        ) : null}
        <button
          type="button"
          aria-expanded={isOpen}
          disabled={!isNamed}
          className="flex min-w-0 flex-1 flex-wrap items-center gap-x-2 rounded-sm text-left"
          onClick={() => setOpen(!isOpen)}
        >
          <span aria-hidden="true" className={`text-muted ${isOpen ? "rotate-90" : ""}`}>
            ▸
          </span>
          <span className="font-mono font-medium wrap-anywhere">{path}</span>
          {hidden ? <span className="text-xs font-semibold text-bad">{hidden}</span> : null}
          <span className="text-xs text-bad">{REASONS[conflict.reason] ?? conflict.reason}</span>
        </button>
        {onChoose && isNamed ? (
          <select
            className="field w-auto text-sm"
            aria-label={`Conflict in ${path}`}
            value={choice}
            onChange={(event) => onChoice(conflict.path, event.target.value as ConflictChoice)}
          >
            <option value="beside">keep the project's, put the session's beside</option>
            <option value="theirs">take the session's</option>
            {conflict.is_text ? <option value="markers">put both in, with markers</option> : null}
          </select>
        ) : null}
      </div>
      {isOpen ? (
        <div className="grid gap-px border-t border-line bg-line lg:grid-cols-2">
          <Version session={session} conflict={conflict} side="project" moment={moment} />
          <Version session={session} conflict={conflict} side="sandbox" moment={moment} />
        </div>
      ) : null}
    </section>
  );
}

const SIDES = { project: "In the project", sandbox: "In the session" };

interface VersionProps {
  session: Session;
  conflict: Conflict;
  side: "project" | "sandbox";
  moment: string;
}

function Version({ session, conflict, side, moment }: VersionProps) {
  const bytes = side === "project" ? conflict.project_bytes : conflict.sandbox_bytes;
  const name = conflict.path.split("/").map(encodeURIComponent).join("/");
  const address = sessionUrl(session.id, `/conflicts/${name}?side=${side}`);
  const label = `${SIDES[side]}: ${cleanText(conflict.path)}`;
  return (
    <div role="group" aria-label={label} className="min-w-0 bg-surface p-3">
      <h3 className="flex flex-wrap items-center gap-x-3 font-medium">
        {SIDES[side]}
        {bytes === null ? null : <span className="font-normal text-muted">{formatBytes(bytes)}</span>}
        {bytes === null ? null : (
          <a className="link font-normal" href={withBase(address)} download>
            Download
          </a>
        )}
      </h3>
      {bytes === null ? (
        <p className="text-muted">There is no file here.</p>
      ) : conflict.is_text ? (
        // The key reads it again for another moment.
        <VersionText key={moment} address={address} />
      ) : (
        <p className="text-muted">A binary file.</p>
      )}
    </div>
  );
}

function VersionText({ address }: { address: string }) {
  const loaded = usePolled(address, null, async (path, signal) => readBounded(await send(path, { signal }), MAX_BYTES));
  if (!loaded.data) {
    if (loaded.error) return <ErrorBox error={loaded.error} onRetry={loaded.reload} />;
    return <Loading what="this version" />;
  }
  const { text, isCut } = loaded.data;
  return (
    <>
      <HiddenBanner texts={[text]} />
      <pre tabIndex={0} className="max-h-96 overflow-auto font-mono text-sm whitespace-pre-wrap wrap-anywhere">
        <Shown text={text} max={MAX_CHARS} />
      </pre>
      {isCut ? <p className="text-muted">The rest is in the download.</p> : null}
    </>
  );
}
