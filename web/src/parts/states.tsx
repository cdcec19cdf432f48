// What a page shows when there is nothing yet, nothing at all, or something wrong; and the states of sessions.
import type { ReactNode } from "react";
import type { ApiError } from "../api/client";

export function Loading({ what }: { what: string }) {
  return (
    <p role="status" className="flex items-center gap-2 py-8 text-sm text-muted">
      <Spinner /> Loading {what}…
    </p>
  );
}

export function Spinner() {
  return (
    <svg aria-hidden="true" viewBox="0 0 16 16" className="size-4 shrink-0 animate-spin">
      <circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" strokeWidth="2" opacity="0.25" />
      <path d="M8 2a6 6 0 0 1 6 6" fill="none" stroke="currentColor" strokeWidth="2" strokeLinecap="round" />
    </svg>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="card border-dashed px-4 py-12 text-center">
      <p className="font-medium">{title}</p>
      {children ? <div className="mt-1 text-sm text-muted">{children}</div> : null}
    </div>
  );
}

export function ErrorBox({ error, onRetry }: { error: ApiError; onRetry?: () => void }) {
  return (
    <div role="alert" className="rounded-lg border border-bad bg-bad-soft px-4 py-3 text-sm">
      <p className="font-medium wrap-anywhere text-bad">{sentence(error.message)}</p>
      {error.remedy ? <p className="mt-1 wrap-anywhere">{sentence(error.remedy)}</p> : null}
      {error.status >= 500 && error.requestId ? (
        <p className="mt-1 text-xs wrap-anywhere text-muted">Request {error.requestId}</p>
      ) : null}
      {onRetry ? (
        <button type="button" className="button mt-2" onClick={onRetry}>
          Try again
        </button>
      ) : null}
    </div>
  );
}

/** The server's messages begin small and end without a dot. */
function sentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?:]$/.test(first) ? first : `${first}.`;
}

const STATES: Record<string, { label: string; style: string; mark: string }> = {
  queued: { label: "Queued", style: "bg-sunken text-muted", mark: "◷" },
  running: { label: "Running", style: "bg-accent-soft text-accent", mark: "●" },
  completed: { label: "Completed", style: "bg-good-soft text-good", mark: "✓" },
  stopped_by_limit: { label: "Limit reached", style: "bg-warn-soft text-warn", mark: "!" },
  interrupted: { label: "Interrupted", style: "bg-warn-soft text-warn", mark: "!" },
  aborted: { label: "Cancelled", style: "bg-sunken text-muted", mark: "■" },
  lost: { label: "Sandbox lost", style: "bg-bad-soft text-bad", mark: "✕" },
  failed: { label: "Failed", style: "bg-bad-soft text-bad", mark: "✕" },
};

export function stateLabel(state: string): string {
  return STATES[state]?.label ?? state;
}

export function StateBadge({ state }: { state: string }) {
  const { label, style, mark } = STATES[state] ?? { label: state, style: "bg-sunken text-muted", mark: "?" };
  return <Badge style={style} mark={mark} label={label} isLively={state === "running"} />;
}

export function Badge({ style, mark, label, isLively = false }: { style: string; mark: string; label: string; isLively?: boolean }) {
  return (
    <span className={`inline-flex items-center gap-1 rounded-full px-2 py-px text-xs font-medium whitespace-nowrap ${style}`}>
      <span aria-hidden="true" className={isLively ? "animate-pulse" : ""}>
        {mark}
      </span>
      {label}
    </span>
  );
}

/** Whether the connection to the server holds; nothing while it does. */
export function OfflineBar() {
  return (
    <p role="status" data-testid="offline" className="border-b border-warn bg-warn-soft px-4 py-2 text-center text-sm text-warn">
      <span aria-hidden="true">⚠ </span>
      The server does not answer. What you see may be out of date; this page keeps trying.
    </p>
  );
}
