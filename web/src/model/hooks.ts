// How components ask the server: values that are asked for again and again, and whether the server answers at all.
import { useCallback, useEffect, useReducer, useRef, useState, useSyncExternalStore } from "react";
import { ApiError, get } from "../api/client";
import type { PlacedEvent } from "../api/events";
import { type Conversation, EMPTY, reduceAll } from "./conversation";
import { type Connection, follow } from "./stream";

let isOffline = false;
const offlineListeners = new Set<() => void>();

/** Notes whether the server answered. */
export function noteReach(error: unknown): void {
  const next = error instanceof ApiError && error.isOffline;
  if (next === isOffline) return;
  isOffline = next;
  for (const listener of offlineListeners) listener();
}

export function useIsOffline(): boolean {
  return useSyncExternalStore(
    (listener) => {
      offlineListeners.add(listener);
      return () => offlineListeners.delete(listener);
    },
    () => isOffline,
  );
}

export interface Polled<T> {
  data: T | null;
  error: ApiError | null;
  reload: () => void;
}

/** A failure as it is shown. */
export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError(-1, error instanceof Error ? error.message : "Something went wrong in this page.", null, "page");
}

/**
 * The value at `path`, asked for every `everyMs` while the page is looked at; once when that is `null`. What was read last
 * stays while the server does not answer.
 */
export function usePolled<T>(path: string, everyMs: number | null, read: (path: string, signal: AbortSignal) => Promise<T> = get): Polled<T> {
  const [state, setState] = useState<{ path: string; data: T | null; error: ApiError | null }>({ path, data: null, error: null });
  const [round, reload] = useReducer((count: number) => count + 1, 0);
  const reader = useRef(read);
  reader.current = read;
  // Without the server even what is read once is asked for again.
  const offline = state.error?.isOffline ?? false;
  const waitMs = offline ? 2000 : everyMs;

  useEffect(() => {
    const abort = new AbortController();
    let timer: number | undefined;
    const ask = async () => {
      try {
        const data = await reader.current(path, abort.signal);
        if (abort.signal.aborted) return;
        noteReach(null);
        setState({ path, data, error: null });
      } catch (caught) {
        if (abort.signal.aborted) return;
        const error = asApiError(caught);
        noteReach(error);
        setState((old) => ({ path, data: old.path === path ? old.data : null, error }));
      }
      again();
    };
    const again = () => {
      if (waitMs === null) return;
      timer = window.setTimeout(() => (document.hidden ? again() : void ask()), waitMs);
    };
    void ask();
    return () => {
      abort.abort();
      window.clearTimeout(timer);
    };
  }, [path, waitMs, round]);

  const isCurrent = state.path === path;
  return { data: isCurrent ? state.data : null, error: isCurrent ? state.error : null, reload };
}

export interface Action {
  run: (work: () => Promise<void>) => void;
  isBusy: boolean;
  error: ApiError | null;
  clear: () => void;
}

/** Something the user does that the server has to do: once at a time, with its failure. */
export function useAction(): Action {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const run = useCallback((work: () => Promise<void>) => {
    setBusy(true);
    setError(null);
    work()
      .catch((caught: unknown) => setError(asApiError(caught)))
      .finally(() => setBusy(false));
  }, []);
  const clear = useCallback(() => setError(null), []);
  return { run, isBusy, error, clear };
}

export interface Followed {
  conversation: Conversation;
  connection: Connection;
  again: () => void;
}

/** The conversation of a session, as it happens. `onEvents` hears of the events besides. */
export function useConversation(id: string, onEvents: (events: PlacedEvent[]) => void): Followed {
  const [conversation, take] = useReducer(reduceAll, EMPTY);
  const [connection, setConnection] = useState<Connection>("connecting");
  const stream = useRef<ReturnType<typeof follow> | null>(null);
  const listener = useRef(onEvents);
  listener.current = onEvents;
  useEffect(() => {
    const followed = follow(id, {
      onEvents: (events) => {
        take(events);
        listener.current(events);
      },
      onConnection: setConnection,
    });
    stream.current = followed;
    return () => followed.stop();
  }, [id]);
  const again = useCallback(() => stream.current?.again(), []);
  return { conversation, connection, again };
}

/** The time, told anew every `everyMs`. */
export function useNow(everyMs: number): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), everyMs);
    return () => window.clearInterval(timer);
  }, [everyMs]);
  return now;
}

/** Whether the window is at least so wide. */
export function useIsWide(query = "(min-width: 64rem)"): boolean {
  return useSyncExternalStore(
    (listener) => {
      const media = window.matchMedia(query);
      media.addEventListener("change", listener);
      return () => media.removeEventListener("change", listener);
    },
    () => window.matchMedia(query).matches,
  );
}

/** Names the page in the browser's tab. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title ? `${title} · Glovebox` : "Glovebox";
  }, [title]);
}
