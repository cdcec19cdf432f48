// One call of a tool: what was asked for, what it says while it runs, and what it came to.
import { memo, useLayoutEffect, useMemo, useRef } from "react";
import { type CallEntry, MAX_ARGUMENT } from "../model/conversation";
import { useNow } from "../model/hooks";
import { readHunks } from "../model/patch";
import { formatDuration, oneLine } from "../model/text";
import { DiffView } from "./diff-view";
import { HiddenBanner, Shown } from "./shown";
import { Badge, Spinner } from "./states";

/** The argument that says most about a call. */
const TELLING = ["command", "path", "pattern", "url", "query", "description"];

function summary(call: CallEntry): string {
  const telling = TELLING.map((name) => call.args.find((arg) => arg.name === name)).find(Boolean);
  return oneLine((telling ?? call.args[0])?.value ?? "", 160);
}

function stateBadge(call: CallEntry) {
  const exit = call.exitCode === null ? "" : `exit ${call.exitCode}`;
  switch (call.state) {
    case "running":
      return <Badge style="bg-accent-soft text-accent" mark="●" label="Running" isLively />;
    case "done":
      return <Badge style="bg-good-soft text-good" mark="✓" label={exit || "Done"} />;
    case "failed":
      return <Badge style="bg-bad-soft text-bad" mark="✕" label={exit || "Failed"} />;
    case "interrupted":
      return <Badge style="bg-warn-soft text-warn" mark="!" label="Interrupted" />;
  }
}

export const CallCard = memo(function CallCard({ call }: { call: CallEntry }) {
  const hunks = useMemo(() => (call.diff ? readHunks(call.diff.split("\n")).hunks : []), [call.diff]);
  const about = summary(call);
  // A diff says what long arguments say, and where.
  const args = hunks.length ? call.args.filter((arg) => !arg.value.includes("\n")) : call.args;
  return (
    <details className="card group overflow-hidden" open={call.state === "running" || call.state === "failed" || undefined} data-testid="call">
      <summary className="flex list-none items-center gap-2 px-3 py-2 text-sm hover:bg-sunken [&::-webkit-details-marker]:hidden">
        <span aria-hidden="true" className="text-muted group-open:rotate-90">
          ▸
        </span>
        <span className="font-semibold whitespace-nowrap">
          {call.server ? `${call.server}: ` : ""}
          {call.tool}
        </span>
        <span className="min-w-0 flex-1 truncate font-mono text-muted">{about}</span>
        {call.wallMs !== null ? (
          <span className="text-xs whitespace-nowrap text-muted">{formatDuration(call.wallMs)}</span>
        ) : call.state === "running" && call.startedMs !== null ? (
          <Elapsed from={call.startedMs} />
        ) : null}
        {stateBadge(call)}
      </summary>
      <div className="grid gap-3 border-t border-line p-3">
        <HiddenBanner texts={call.args.map((arg) => arg.value)} />
        {args.length ? (
          <dl className="grid gap-2 text-sm">
            {args.map((arg) => (
              <div key={arg.name} className="grid gap-1 sm:grid-cols-[8rem_minmax(0,1fr)]">
                <dt className="truncate text-muted">{arg.name || "arguments"}</dt>
                <dd tabIndex={0} className="max-h-60 overflow-auto font-mono wrap-anywhere whitespace-pre-wrap">
                  <Shown text={arg.value} max={MAX_ARGUMENT} />
                </dd>
              </div>
            ))}
          </dl>
        ) : null}
        {call.state === "running" ? (
          call.live ? (
            <Output label="Output so far" text={call.isLiveCut ? `[… earlier output is not shown …]\n${call.live}` : call.live} isLive />
          ) : (
            <p className="flex items-center gap-2 text-sm text-muted">
              <Spinner /> No output yet
            </p>
          )
        ) : null}
        {call.output ? <Output label="Result" text={call.output} /> : null}
        {hunks.length ? (
          <div className="overflow-hidden rounded-md border border-line">
            <DiffView hunks={hunks} isSplit={false} label={`Changes by ${call.tool}`} />
          </div>
        ) : null}
        {call.images ? (
          <p className="text-sm text-muted">
            {call.images} {call.images === 1 ? "picture" : "pictures"} for the model.
          </p>
        ) : null}
      </div>
    </details>
  );
});

function Elapsed({ from }: { from: number }) {
  const now = useNow(500);
  return <span className="text-xs whitespace-nowrap text-muted">{formatDuration(now - from)}</span>;
}

function Output({ label, text, isLive = false }: { label: string; text: string; isLive?: boolean }) {
  const box = useRef<HTMLPreElement>(null);
  // Where the user has scrolled up to read, the box stays.
  const isAtEnd = useRef(true);
  useLayoutEffect(() => {
    if (isLive && isAtEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text, isLive]);
  return (
    <pre
      ref={box}
      onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => {
        isAtEnd.current = scrollHeight - scrollTop - clientHeight < 24;
      }}
      tabIndex={0}
      role="group"
      aria-label={label}
      className="max-h-96 overflow-auto rounded-md bg-sunken p-3 font-mono text-sm wrap-anywhere whitespace-pre-wrap"
    >
      {text}
    </pre>
  );
}
