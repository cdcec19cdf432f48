// All sessions of the user, and the form that begins one.
import type { Session } from "../api/client";
import { useNow, usePolled, useTitle } from "../model/hooks";
import { isActive } from "../model/stream";
import { formatAgo, oneLine } from "../model/text";
import { NewSession } from "../parts/new-session";
import { Badge, Empty, ErrorBox, Loading, StateBadge } from "../parts/states";
import { Link } from "../router";
import { useState } from "react";

const PAGE = 50;

export function SessionsPage() {
  useTitle("");
  const { data, error, reload } = usePolled<{ sessions: Session[] }>("/api/sessions", 3000);
  const now = useNow(10_000);
  const [filter, setFilter] = useState("");
  const [max, setMax] = useState(PAGE);
  const words = filter.trim().toLowerCase();
  const found = (data?.sessions ?? []).filter((session) =>
    [session.task, session.id, session.model, session.user, session.state].some((text) => text.toLowerCase().includes(words)),
  );
  return (
    <div className="grid gap-8">
      <NewSession />
      <section aria-labelledby="sessions-title" className="grid gap-3">
        <div className="flex flex-wrap items-center gap-3">
          <h2 id="sessions-title" className="text-lg font-semibold">
            Sessions
          </h2>
          {data ? <span className="text-sm text-muted">{data.sessions.length}</span> : null}
          {data && data.sessions.length > 5 ? (
            <input
              type="search"
              className="field ml-auto max-w-60 text-sm"
              aria-label="Find a session"
              placeholder="Find a session"
              value={filter}
              onChange={(event) => setFilter(event.target.value)}
            />
          ) : null}
        </div>
        {error && !data ? <ErrorBox error={error} onRetry={reload} /> : null}
        {!data && !error ? <Loading what="sessions" /> : null}
        {data?.sessions.length === 0 ? (
          <Empty title="No sessions yet">Say above what is to be done.</Empty>
        ) : null}
        {data && data.sessions.length > 0 && found.length === 0 ? <Empty title="No session matches" /> : null}
        {found.length ? (
          <ul className="card divide-y divide-line overflow-hidden">
            {found.slice(0, max).map((session) => (
              <Row key={session.id} session={session} now={now} />
            ))}
          </ul>
        ) : null}
        {found.length > max ? (
          <button type="button" className="button justify-self-center" onClick={() => setMax(max + PAGE)}>
            Show more
          </button>
        ) : null}
      </section>
    </div>
  );
}

function Row({ session, now }: { session: Session; now: number }) {
  return (
    <li>
      <Link
        href={`/sessions/${encodeURIComponent(session.id)}`}
        className="flex flex-col gap-1 px-4 py-3 -outline-offset-2 hover:bg-sunken sm:flex-row sm:items-center sm:gap-4"
      >
        <span className="min-w-0 flex-1">
          <span className="line-clamp-2 font-medium wrap-anywhere sm:line-clamp-1">{oneLine(session.task, 300)}</span>
          <span className="flex flex-wrap gap-x-3 text-sm text-muted">
            <span className="font-mono">{session.id}</span>
            <span>{session.model}</span>
            {session.placement === "local" ? <span className="font-medium text-bad">no sandbox</span> : null}
            <span>{session.user}</span>
            {session.queue_position ? <span>place {session.queue_position} in the queue</span> : null}
          </span>
        </span>
        <span className="flex items-center gap-3">
          {session.approvals.length ? <Badge style="bg-warn-soft text-warn" mark="?" label="Waits for you" /> : null}
          <StateBadge state={session.state} />
          <time
            className="text-sm whitespace-nowrap text-muted sm:w-24 sm:text-right"
            dateTime={new Date(session.updated_unix_ms).toISOString()}
            title={new Date(session.updated_unix_ms).toLocaleString()}
          >
            {isActive(session.state) ? "now" : formatAgo(session.updated_unix_ms, now)}
          </time>
        </span>
      </Link>
    </li>
  );
}
