// The checkpoints of a session: made, gone back to, and begun from.
import { type FormEvent, useState } from "react";
import { type Checkpoint, type CheckpointList, post, type Session, sessionUrl } from "../api/client";
import { useAction, useNow, usePolled } from "../model/hooks";
import { isActive } from "../model/stream";
import { cleanText, formatAgo } from "../model/text";
import { Confirm } from "../parts/confirm";
import { Badge, Empty, ErrorBox, Loading } from "../parts/states";
import { navigate } from "../router";

export function CheckpointsView({ session }: { session: Session }) {
  const url = sessionUrl(session.id, "/checkpoints");
  const { data, error, reload } = usePolled<CheckpointList>(url, 10_000);
  const [comment, setComment] = useState("");
  const [restoring, setRestoring] = useState<Checkpoint | null>(null);
  const [told, setTold] = useState("");
  const action = useAction();
  const works = isActive(session.state);

  const make = (event: FormEvent) => {
    event.preventDefault();
    action.run(async () => {
      // While the agent works, its files are copied as they are, because commands may be running.
      const made = await post<Checkpoint>(url, { live: works, ...(comment.trim() ? { comment: comment.trim() } : {}) });
      setComment("");
      setTold(`Checkpoint ${made.id} was made.`);
      reload();
    });
  };
  const restore = (checkpoint: Checkpoint) =>
    action.run(async () => {
      await post(sessionUrl(session.id, "/restore"), { checkpoint_id: checkpoint.id });
      setTold(`The files are those of checkpoint ${checkpoint.id}.`);
      reload();
    });
  const fork = (checkpoint: Checkpoint | null) =>
    action.run(async () => {
      const body = checkpoint ? { checkpoint_id: checkpoint.id } : {};
      const made = await post<{ session_id: string }>(sessionUrl(session.id, "/fork"), body);
      navigate(`/sessions/${encodeURIComponent(made.session_id)}`);
    });

  return (
    <div className="mx-auto grid w-full max-w-4xl gap-4">
      <form onSubmit={make} className="card flex flex-wrap items-center gap-2 p-3">
        <input
          className="field min-w-48 flex-1"
          aria-label="Comment of the checkpoint"
          placeholder="A few words about it"
          maxLength={1000}
          value={comment}
          onChange={(event) => setComment(event.target.value)}
        />
        <button type="submit" className="button button-main" disabled={action.isBusy}>
          Make checkpoint
        </button>
        <button type="button" className="button" disabled={action.isBusy} onClick={() => fork(null)}>
          Fork from now
        </button>
      </form>
      {action.error ? <ErrorBox error={action.error} /> : null}
      <p role="status" className={told ? "text-sm text-good" : "sr-only"}>
        {told}
      </p>
      {error && !data ? <ErrorBox error={error} onRetry={reload} /> : null}
      {!data && !error ? <Loading what="the checkpoints" /> : null}
      {data?.checkpoints.length === 0 ? (
        <Empty title="No checkpoints yet">A checkpoint keeps the files as they are now; the session can go back to it at any time.</Empty>
      ) : null}
      {data?.checkpoints.length ? (
        <ol className="grid" reversed>
          {[...data.checkpoints].reverse().map((checkpoint) => (
            <Item
              key={checkpoint.id}
              checkpoint={checkpoint}
              isCurrent={checkpoint.id === data.current}
              isBusy={action.isBusy}
              canRestore={!works}
              onRestore={() => setRestoring(checkpoint)}
              onFork={() => fork(checkpoint)}
            />
          ))}
        </ol>
      ) : null}
      {restoring ? (
        <Confirm
          title={`Go back to checkpoint ${restoring.id}?`}
          text="What was written since the last checkpoint is gone then. The conversation stays as it is."
          verb="Restore"
          onConfirm={() => restore(restoring)}
          onClose={() => setRestoring(null)}
        />
      ) : null}
    </div>
  );
}

interface ItemProps {
  checkpoint: Checkpoint;
  isCurrent: boolean;
  isBusy: boolean;
  canRestore: boolean;
  onRestore: () => void;
  onFork: () => void;
}

function Item({ checkpoint, isCurrent, isBusy, canRestore, onRestore, onFork }: ItemProps) {
  const now = useNow(30_000);
  return (
    <li className="relative flex flex-wrap items-center gap-x-3 gap-y-2 border-l-2 border-line py-3 pl-6 ml-2">
      <span
        aria-hidden="true"
        className={`absolute top-4 -left-[7px] size-3 rounded-full border-2 ${isCurrent ? "border-accent bg-accent" : "border-edge bg-page"}`}
      />
      <div className="min-w-0 flex-1 basis-60">
        <p className="flex flex-wrap items-center gap-2">
          <span className="font-mono font-medium">{checkpoint.id}</span>
          {isCurrent ? <Badge style="bg-accent-soft text-accent" mark="✓" label="Current" /> : null}
        </p>
        <p className="text-sm wrap-anywhere text-muted">
          {checkpoint.comment ? `${cleanText(checkpoint.comment)} · ` : ""}
          <time dateTime={new Date(checkpoint.created_unix_ms).toISOString()} title={new Date(checkpoint.created_unix_ms).toLocaleString()}>
            {formatAgo(checkpoint.created_unix_ms, now)}
          </time>
          {checkpoint.parent ? ` · after ${checkpoint.parent}` : ""}
        </p>
      </div>
      <div className="flex gap-2">
        <button
          type="button"
          className="button"
          disabled={isBusy || !canRestore}
          title={canRestore ? undefined : "Cancel the session first"}
          aria-label={`Restore ${checkpoint.id}`}
          onClick={onRestore}
        >
          Restore
        </button>
        <button type="button" className="button" disabled={isBusy} aria-label={`Fork from ${checkpoint.id}`} onClick={onFork}>
          Fork
        </button>
      </div>
    </li>
  );
}
