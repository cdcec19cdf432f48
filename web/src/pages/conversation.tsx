// The conversation of a session as it happens, and the box for a message.
import { type FormEvent, memo, useEffect, useRef, useState } from "react";
import { post, type Session, sessionUrl } from "../api/client";
import type { Conversation, Entry } from "../model/conversation";
import { useAction } from "../model/hooks";
import { type Connection, isActive } from "../model/stream";
import { formatBytes } from "../model/text";
import { CallCard } from "../parts/call-card";
import { submitOnEnter } from "../parts/new-session";
import { Prose } from "../parts/prose";
import { ErrorBox, Loading, Spinner, stateLabel } from "../parts/states";

/** Entries that are shown before a click on "earlier". */
const SHOWN = 150;

interface ConversationViewProps {
  session: Session;
  conversation: Conversation;
  connection: Connection;
  onSaid: () => void;
}

export function ConversationView({ session, conversation, connection, onSaid }: ConversationViewProps) {
  const [shown, setShown] = useState(SHOWN);
  const { entries } = conversation;
  const hidden = Math.max(0, entries.length - shown);
  const end = useFollowedEnd([conversation]);
  return (
    <div className="mx-auto grid w-full max-w-4xl grid-cols-[minmax(0,1fr)] gap-4">
      {connection === "offline" ? (
        <p role="status" className="rounded-md bg-warn-soft px-3 py-2 text-sm text-warn">
          <span aria-hidden="true">⚠ </span>The connection to the session is lost. It comes back by itself, where it was cut off.
        </p>
      ) : null}
      <div role="log" aria-label="Conversation" className="grid grid-cols-[minmax(0,1fr)] gap-4">
        {conversation.dropped > 0 ? (
          <p className="text-center text-sm text-muted">{conversation.dropped} older entries are not kept in this page.</p>
        ) : null}
        {hidden > 0 ? (
          <button type="button" className="button justify-self-center" onClick={() => setShown(shown + SHOWN)}>
            Show earlier ({hidden})
          </button>
        ) : null}
        {entries.slice(hidden).map((entry) => (
          <EntryView key={entry.key} entry={entry} />
        ))}
        {conversation.thoughts ? <Thoughts text={conversation.thoughts} isOpen /> : null}
        {conversation.words ? <Prose text={conversation.words} /> : null}
      </div>
      {entries.length === 0 && connection === "connecting" ? <Loading what="the conversation" /> : null}
      <Progress session={session} conversation={conversation} />
      <div ref={end} />
      <MessageBox session={session} onSaid={onSaid} />
    </div>
  );
}

/** Keeps the end in sight while it is in sight. */
function useFollowedEnd(changes: unknown[]) {
  const end = useRef<HTMLDivElement>(null);
  const isNear = useRef(false);
  useEffect(() => {
    const look = () => {
      const page = document.documentElement;
      isNear.current = page.scrollHeight > page.clientHeight + 8 && page.scrollHeight - page.scrollTop - page.clientHeight < 80;
    };
    window.addEventListener("scroll", look, { passive: true });
    return () => window.removeEventListener("scroll", look);
  }, []);
  useEffect(() => {
    if (isNear.current) window.scrollTo(0, document.documentElement.scrollHeight);
  }, changes);
  return end;
}

const ENDINGS: Record<string, string> = {
  completed: "Completed",
  aborted: "Cancelled",
  failed: "Failed",
  lost: "The sandbox was lost",
};

const EntryView = memo(function EntryView({ entry }: { entry: Entry }) {
  switch (entry.kind) {
    case "user":
      return (
        <div className="rounded-lg bg-accent-soft px-4 py-3">
          <p className="text-xs font-semibold text-accent">You</p>
          <p className="wrap-anywhere whitespace-pre-wrap">{entry.text}</p>
        </div>
      );
    case "words":
      return <Prose text={entry.text} />;
    case "thoughts":
      return <Thoughts text={entry.text} />;
    case "note":
      return (
        <p className={`text-sm wrap-anywhere ${entry.tone === "warn" ? "text-warn" : "text-muted"}`}>
          <span aria-hidden="true">{entry.tone === "warn" ? "! " : "· "}</span>
          {entry.text}
        </p>
      );
    case "end": {
      const isGood = entry.ending === "completed";
      const label = ENDINGS[entry.ending] ?? entry.ending.replaceAll("_", " ");
      return (
        <div className="flex flex-wrap items-center gap-x-3 border-t border-line pt-3 text-sm text-muted">
          <span className={`font-medium first-letter:uppercase ${isGood ? "text-good" : "text-warn"}`}>{label}</span>
          <span>
            {entry.turns} {entry.turns === 1 ? "turn" : "turns"}
          </span>
          {entry.costUsd ? <span>${entry.costUsd.toFixed(3)}</span> : null}
          {isGood ? null : <span className="basis-full wrap-anywhere">{entry.message}</span>}
        </div>
      );
    }
    case "call":
      return <CallCard call={entry} />;
  }
});

function Thoughts({ text, isOpen = false }: { text: string; isOpen?: boolean }) {
  return (
    <details className="text-sm text-muted" open={isOpen || undefined}>
      <summary className="w-fit rounded-sm">Thoughts</summary>
      <p className="mt-1 border-l-2 border-line pl-3 wrap-anywhere whitespace-pre-wrap">{text}</p>
    </details>
  );
}

/** What happens just now, in one line. */
function Progress({ session, conversation }: { session: Session; conversation: Conversation }) {
  if (!isActive(session.state)) return null;
  const runs = conversation.entries.some((entry) => entry.kind === "call" && entry.state === "running");
  let text = "The model is working";
  if (session.approvals.length) text = "Waiting for your answer above";
  else if (session.state === "queued") text = session.queue_position ? `Place ${session.queue_position} in the queue` : "Waiting for its turn";
  else if (conversation.writing)
    text = `The model is writing a call of ${conversation.writing.tool} (${formatBytes(conversation.writing.bytes)})`;
  else if (conversation.words) text = "The model is writing";
  else if (runs) text = "A tool is running";
  else if (conversation.turn === 0) text = session.placement === "local" ? "The session is starting" : "The sandbox is starting";
  return (
    <p role="status" className="flex items-center gap-2 text-sm text-muted">
      <Spinner /> {text}…
    </p>
  );
}

function MessageBox({ session, onSaid }: { session: Session; onSaid: () => void }) {
  const [text, setText] = useState("");
  const [mustInterrupt, setMustInterrupt] = useState(false);
  const action = useAction();
  const works = isActive(session.state);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    action.run(async () => {
      await post(sessionUrl(session.id, "/messages"), { text, interrupt: works && mustInterrupt, ask: true });
      setText("");
      onSaid();
    });
  };
  return (
    <form onSubmit={submit} className="card grid gap-2 p-3">
      <textarea
        className="field min-h-16 resize-y py-2"
        aria-label="Message"
        placeholder={works ? "A message for the agent" : `${stateLabel(session.state)}. A message goes on with the session`}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={submitOnEnter}
      />
      {action.error ? <ErrorBox error={action.error} /> : null}
      <div className="flex flex-wrap items-center gap-3">
        <button type="submit" className="button button-main" disabled={action.isBusy || !text.trim()}>
          {action.isBusy ? "Sending…" : "Send"}
        </button>
        {works ? (
          <label className="flex items-center gap-2 text-sm">
            <input
              type="checkbox"
              className="size-4 accent-accent"
              checked={mustInterrupt}
              onChange={(event) => setMustInterrupt(event.target.checked)}
            />
            Interrupt what it does
          </label>
        ) : null}
        <span className="ml-auto hidden text-sm text-muted sm:inline">Ctrl + Enter</span>
      </div>
    </form>
  );
}
