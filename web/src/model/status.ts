// Follows the server itself: how it stands, and what its environment is like. The newest of both comes with the
// connection, so nothing is remembered from one to the next.
import { useEffect, useState } from "react";
import type { components } from "../api/schema";

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

/** The newest that the server has said; what was said last stays while it does not answer. */
export function useServerStatus(isOn: boolean): Followed {
  const [followed, setFollowed] = useState<Followed>({ status: null, environment: null });
  useEffect(() => {
    if (!isOn || typeof EventSource === "undefined") return;
    let source: EventSource | null = null;
    let timer: number | undefined;
    const connect = () => {
      const opened = new EventSource("/api/status/events");
      source = opened;
      opened.addEventListener("status", ({ data }: MessageEvent<string>) => {
        const status = parse<ServerStatus>(data);
        if (status) setFollowed((old) => ({ ...old, status }));
      });
      opened.addEventListener("environment", ({ data }: MessageEvent<string>) => {
        const environment = parse<Environment>(data);
        if (environment) setFollowed((old) => ({ ...old, environment }));
      });
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
  }, [isOn]);
  return followed;
}
