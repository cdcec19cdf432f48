// One session: how it stands, and its views, which share one stream of events.
import { lazy, Suspense, useState } from "react";
import { post, send, type Session, sessionUrl } from "../api/client";
import { useAction, useConversation, usePolled, useTitle } from "../model/hooks";
import { isActive } from "../model/stream";
import { oneLine } from "../model/text";
import { Approvals } from "../parts/approvals";
import { Confirm } from "../parts/confirm";
import { Empty, ErrorBox, Loading, StateBadge } from "../parts/states";
import { Link, navigate } from "../router";
import { ChangesView } from "./changes";
import { CheckpointsView } from "./checkpoints";
import { ConversationView } from "./conversation";
import { FilesView } from "./files";
import { PortsView } from "./ports";

/** The terminal is as large as all the rest, so it is read when it is first looked at. */
const TerminalView = lazy(() => import("./terminal").then(({ TerminalView }) => ({ default: TerminalView })));

const VIEWS = [
  ["conversation", "Conversation"],
  ["changes", "Changes"],
  ["files", "Files"],
  ["checkpoints", "Checkpoints"],
  ["terminal", "Terminal"],
  ["ports", "Ports"],
] as const;

/** Events after which the session itself is looked at again. */
const TELLING = new Set(["started", "resumed", "said", "ended", "queued", "approval_asked", "approval_answered"]);

export function SessionPage({ id, view, rest }: { id: string; view: string; rest: string[] }) {
  const session = usePolled<Session>(sessionUrl(id), 3000);
  const { conversation, connection, again } = useConversation(id, (events) => {
    if (events.some(({ event }) => TELLING.has(event.type))) session.reload();
  });
  const data = session.data;
  useTitle(data ? oneLine(data.task, 60) : "Session");
  if (!data) {
    return (
      <>
        <h1 className="mb-4 text-xl font-semibold wrap-anywhere">Session {id}</h1>
        {session.error ? <ErrorBox error={session.error} onRetry={session.reload} /> : <Loading what="the session" />}
      </>
    );
  }
  const base = `/sessions/${encodeURIComponent(id)}`;
  return (
    <div className="grid grid-cols-[minmax(0,1fr)] gap-4">
      <div className="grid gap-2">
        <div className="flex flex-wrap items-start gap-x-3 gap-y-2">
          <h1 className="line-clamp-2 min-w-0 flex-1 basis-72 text-xl font-semibold wrap-anywhere">{oneLine(data.task, 300)}</h1>
          <Actions session={data} onDone={session.reload} />
        </div>
        <dl className="flex flex-wrap items-center gap-x-4 gap-y-1 text-sm text-muted">
          <Fact name="State" value={<StateBadge state={data.state} />} />
          <Fact name="Session" value={<span className="font-mono">{data.id}</span>} />
          <Fact name="Model" value={data.model} />
          <Fact
            name="Placement"
            value={data.placement === "local" ? <strong className="text-bad">this machine, no sandbox</strong> : (data.sandbox ?? data.placement)}
          />
          {data.workspace ? <Fact name="Workspace" value={"source" in data.workspace ? `source ${data.workspace.source}` : `upload ${data.workspace.upload}`} /> : null}
          <Fact name="User" value={data.user} />
          {conversation.costUsd > 0 ? <Fact name="Cost" value={`$${conversation.costUsd.toFixed(3)}`} /> : null}
          {data.queue_position ? <Fact name="Queue" value={`place ${data.queue_position} in the queue`} /> : null}
          {data.waits_for ? <Fact name="Waits because" value={data.waits_for} /> : null}
        </dl>
      </div>
      <nav aria-label="Session" className="-mx-4 overflow-x-auto border-b border-line px-4 sm:mx-0 sm:px-0">
        <ul className="flex gap-4">
          {VIEWS.map(([name, label]) => (
            <li key={name}>
              <Link
                href={name === "conversation" ? base : `${base}/${name}`}
                aria-current={view === name ? "page" : undefined}
                className={`-mb-px block border-b-2 py-2 text-sm font-medium -outline-offset-2 whitespace-nowrap ${view === name ? "border-accent text-ink" : "border-transparent text-muted hover:text-ink"}`}
              >
                {label}
              </Link>
            </li>
          ))}
        </ul>
      </nav>
      <div className={view === "conversation" ? "mx-auto w-full max-w-4xl empty:hidden" : "empty:hidden"}>
        <Approvals session={id} approvals={data.approvals} onAnswered={session.reload} />
      </div>
      {view === "conversation" ? (
        <ConversationView
          session={data}
          conversation={conversation}
          connection={connection}
          onSaid={() => {
            session.reload();
            again();
          }}
        />
      ) : view === "changes" ? (
        <ChangesView session={data} />
      ) : view === "files" ? (
        <FilesView session={data} path={rest.join("/")} />
      ) : view === "checkpoints" ? (
        <CheckpointsView session={data} />
      ) : view === "terminal" ? (
        data.sandbox ? (
          <Suspense fallback={<Loading what="the terminal" />}>
            <TerminalView session={data} />
          </Suspense>
        ) : (
          <Empty title="No terminal">This session has no sandbox that a shell could be opened in.</Empty>
        )
      ) : view === "ports" ? (
        data.sandbox ? (
          <PortsView session={data} />
        ) : (
          <Empty title="No ports">This session has no sandbox that a program could listen in.</Empty>
        )
      ) : (
        <Empty title="There is no such page" />
      )}
    </div>
  );
}

function Fact({ name, value }: { name: string; value: React.ReactNode }) {
  return (
    <div className="flex min-w-0 items-center">
      <dt className="sr-only">{name}</dt>
      <dd className="wrap-anywhere">{value}</dd>
    </div>
  );
}

function Actions({ session, onDone }: { session: Session; onDone: () => void }) {
  const [isAsking, setAsking] = useState(false);
  const action = useAction();
  const cancel = () =>
    action.run(async () => {
      await post(sessionUrl(session.id, "/cancel"), {});
      onDone();
    });
  const remove = () =>
    action.run(async () => {
      await send(sessionUrl(session.id), { method: "DELETE" });
      navigate("/");
    });
  return (
    <div className="grid gap-2">
      {isActive(session.state) ? (
        <button type="button" className="button button-bad" disabled={action.isBusy} onClick={cancel}>
          Cancel
        </button>
      ) : (
        <button type="button" className="button" disabled={action.isBusy} onClick={() => setAsking(true)}>
          Delete
        </button>
      )}
      {action.error ? <ErrorBox error={action.error} /> : null}
      {isAsking ? (
        <Confirm
          title="Delete this session?"
          text={
            session.placement === "local"
              ? "Its conversation is gone then. What it changed on this machine stays."
              : "Its conversation, its sandbox and the changes that were not applied are gone then."
          }
          verb="Delete session"
          onConfirm={remove}
          onClose={() => setAsking(false)}
        />
      ) : null}
    </div>
  );
}
