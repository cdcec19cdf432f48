// Follows the events of one session: connects, comes back where it was cut off, and stops when the session has ended.
import { ApiError, get, type Session, sessionUrl } from "../api/client";
import { EVENT_TYPES, parseEvent, type PlacedEvent } from "../api/events";
import { withBase } from "../base";

/** How a page stands to the stream. */
export type Connection = "connecting" | "open" | "offline" | "ended" | "failed";

export interface StreamHandlers {
  onEvents(events: PlacedEvent[]): void;
  onConnection(connection: Connection): void;
}

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8000;
/** Events are handed on together, so that a flood costs few renderings. */
const BATCH_MS = 50;

export function isActive(state: string): boolean {
  return state === "queued" || state === "running";
}

/** Follows a session until `stop` is called. */
export function follow(id: string, handlers: StreamHandlers): { stop(): void; again(): void } {
  let last = "0";
  let source: EventSource | null = null;
  let timer: number | undefined;
  let flush: number | undefined;
  let waitMs = FIRST_WAIT_MS;
  let isStopped = false;
  let ready: PlacedEvent[] = [];

  const handOn = () => {
    flush = undefined;
    const events = ready;
    ready = [];
    if (events.length && !isStopped) handlers.onEvents(events);
  };

  const take = (message: MessageEvent<string>) => {
    const event = parseEvent(message.lastEventId, message.data);
    if (!event) return;
    last = message.lastEventId;
    ready.push(event);
    flush ??= window.setTimeout(handOn, BATCH_MS);
  };

  const connect = () => {
    timer = undefined;
    const opened = new EventSource(withBase(sessionUrl(id, `/events?after=${encodeURIComponent(last)}`)));
    source = opened;
    opened.onopen = () => {
      waitMs = FIRST_WAIT_MS;
      handlers.onConnection("open");
    };
    for (const type of EVENT_TYPES) opened.addEventListener(type, take as EventListener);
    // The stream is over, or cut: the session itself tells which. The browser's own attempts are not waited for.
    opened.onerror = () => {
      opened.close();
      if (source === opened) source = null;
      if (!isStopped) void look();
    };
  };

  const later = () => {
    timer = window.setTimeout(() => void look(), waitMs);
    waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS);
  };

  const look = async () => {
    timer = undefined;
    try {
      const session = await get<Session>(sessionUrl(id));
      if (isStopped || source || isAsleep) return;
      if (!isActive(session.state) && Number(last.split(".")[0]) >= session.events) {
        handlers.onConnection("ended");
        return;
      }
      // An ended session's log is there at once; a running one's stream may have been cut for a reason that lasts.
      handlers.onConnection("connecting");
      timer = window.setTimeout(connect, waitMs);
    } catch (error) {
      if (isStopped || isAsleep) return;
      const isFinal = error instanceof ApiError && [401, 403, 404].includes(error.status);
      handlers.onConnection(isFinal ? "failed" : "offline");
      if (!isFinal) later();
    }
  };

  // A tab that is not looked at leaves its connection to others: a browser has six of them for a server.
  let isAsleep = false;
  const onVisibility = () => {
    if (document.hidden && (source || timer !== undefined)) {
      isAsleep = true;
      source?.close();
      source = null;
      window.clearTimeout(timer);
      timer = undefined;
    } else if (!document.hidden && isAsleep) {
      isAsleep = false;
      waitMs = FIRST_WAIT_MS;
      connect();
    }
  };
  document.addEventListener("visibilitychange", onVisibility);

  handlers.onConnection("connecting");
  connect();
  return {
    stop() {
      isStopped = true;
      document.removeEventListener("visibilitychange", onVisibility);
      source?.close();
      window.clearTimeout(timer);
      window.clearTimeout(flush);
    },
    /** Looks again after the session was given new work, or when the user asks. */
    again() {
      if (source || isStopped || isAsleep) return;
      window.clearTimeout(timer);
      waitMs = FIRST_WAIT_MS;
      handlers.onConnection("connecting");
      connect();
    },
  };
}
