// A shell in the sandbox of a session. It lives as long as this view is open.
import "@xterm/xterm/css/xterm.css";
import { useEffect, useRef, useState } from "react";
import type { Session } from "../api/client";
import { Spinner } from "../parts/states";
import type { ShellState } from "../terminal/ending";
import { openShell, type Shell } from "../terminal/shell";

export function TerminalView({ session }: { session: Session }) {
  const [round, setRound] = useState(0);
  const [state, setState] = useState<ShellState>({ kind: "connecting" });
  const [isReadAloud, setReadAloud] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  const newShell = useRef<HTMLButtonElement>(null);
  const shell = useRef<Shell | null>(null);
  useEffect(() => {
    if (!place.current) return;
    const opened = openShell(session.id, place.current, setState, () => newShell.current?.focus());
    shell.current = opened;
    return () => {
      shell.current = null;
      opened.close();
    };
  }, [session.id, round]);
  useEffect(() => shell.current?.setScreenReader(isReadAloud), [isReadAloud, round]);
  return (
    <div className="grid grid-cols-[minmax(0,1fr)] gap-3">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-2">
        <p role="status" data-testid="shell-state" className="flex min-w-0 flex-1 basis-60 items-center gap-2 text-sm text-muted">
          <StateText state={state} />
        </p>
        <div className="flex gap-2">
          <button type="button" className="button" aria-pressed={isReadAloud} onClick={() => setReadAloud(!isReadAloud)}>
            Screen reader
          </button>
          <button ref={newShell} type="button" className="button" onClick={() => setRound(round + 1)}>
            New shell
          </button>
        </div>
      </div>
      <div role="group" aria-label="Terminal" className="card overflow-hidden p-2 focus-within:border-accent">
        <div ref={place} className="h-[60dvh] min-h-64" />
      </div>
      <p className="text-sm text-muted">
        The keyboard belongs to the terminal while it has the focus; <kbd className="font-mono">Ctrl+F6</kbd> leaves it. Leaving this view ends the
        shell and what it started.
      </p>
    </div>
  );
}

function StateText({ state }: { state: ShellState }) {
  switch (state.kind) {
    case "connecting":
      return (
        <>
          <Spinner /> Opening a shell…
        </>
      );
    case "open":
      return (
        <>
          <span aria-hidden="true" className="text-good">
            ●
          </span>
          Connected
        </>
      );
    case "ended":
      return <>{state.text}</>;
    case "lost":
      return <span className="text-bad">{state.text}</span>;
  }
}
