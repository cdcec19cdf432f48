// Follows the server itself: how it stands, and what its environment is like. The newest of both comes with the
// connection, so nothing is remembered from one to the next.
import { useEffect, useState } from "react";
import type { components } from "../api/schema";
import { withBase } from "../base";

export type Environment = components["schemas"]["EnvironmentSnapshot"];
export type ServerStatus = components["schemas"]["ServerStatus"];

export interface Followed {
  status: ServerStatus | null;
  environment: Environment | null;
}

const AGAIN_MS = 3000;

function parse<T>(data: string): T | null {
  try {
    return JSON.parse(data) as T;
  } catch {
    return null;
  }
}

type Take = (type: string, data: string) => void;

/** Follows the status over a stream of this tab's own. Returns what ends it. */
function followAlone(take: Take): () => void {
  if (typeof EventSource === "undefined") return () => {};
  let source: EventSource | null = null;
  let timer: number | undefined;
  const connect = () => {
    const opened = new EventSource(withBase("/api/status/events"));
    source = opened;
    for (const type of ["status", "environment"]) {
      opened.addEventListener(type, ({ data }: MessageEvent<string>) => take(type, data));
    }
    opened.onerror = () => {
      opened.close();
      timer = window.setTimeout(connect, AGAIN_MS);
    };
  };
  connect();
  return () => {
    source?.close();
    window.clearTimeout(timer);
  };
}

/** Follows the status over the one stream of all tabs. Where there can be none, over one of this tab's own. */
function followTogether(take: Take): () => void {
  if (typeof SharedWorker === "undefined") return followAlone(take);
  let endAlone: (() => void) | null = null;
  const worker = new SharedWorker(withBase("/status-worker.js"), { name: "glovebox-status" });
  const { port } = worker;
  worker.onerror = () => {
    endAlone ??= followAlone(take);
  };
  port.onmessage = ({ data }: MessageEvent<{ type: string; data: string }>) => take(data.type, data.data);
  const say = (word: "hello" | "bye") => port.postMessage(word);
  const leave = () => say("bye");
  // A page that is shown again out of the browser's memory has said good-bye.
  const comeBack = (event: PageTransitionEvent) => {
    if (event.persisted) say("hello");
  };
  say("hello");
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", comeBack);
  return () => {
    leave();
    port.close();
    endAlone?.();
    window.removeEventListener("pagehide", leave);
    window.removeEventListener("pageshow", comeBack);
  };
}

/** The newest that the server has said; what was said last stays while it does not answer. */
export function useServerStatus(isOn: boolean): Followed {
  const [followed, setFollowed] = useState<Followed>({ status: null, environment: null });
  useEffect(() => {
    if (!isOn) return;
    return followTogether((type, data) => {
      const value = parse<ServerStatus & Environment>(data);
      if (value) setFollowed((old) => ({ ...old, [type]: value }));
    });
  }, [isOn]);
  return followed;
}
