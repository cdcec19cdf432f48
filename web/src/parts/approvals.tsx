// Questions of a session that wait for the user.
import { useState } from "react";
import { type Answer, type Approval, post, sessionUrl } from "../api/client";
import { MAX_ARGUMENT, readArguments } from "../model/conversation";
import { useAction } from "../model/hooks";
import { cleanText } from "../model/text";
import { HiddenBanner, Shown } from "./shown";
import { ErrorBox } from "./states";

export function Approvals({ session, approvals, onAnswered }: { session: string; approvals: Approval[]; onAnswered: () => void }) {
  if (!approvals.length) return null;
  return (
    <section aria-label="Questions" className="grid gap-3" aria-live="assertive">
      {approvals.map((approval) => (
        <Question key={approval.id} session={session} approval={approval} onAnswered={onAnswered} />
      ))}
    </section>
  );
}

function Question({ session, approval, onAnswered }: { session: string; approval: Approval; onAnswered: () => void }) {
  const [reason, setReason] = useState("");
  const action = useAction();
  const answer = (word: Answer) =>
    action.run(async () => {
      const why = word === "deny" && reason.trim() ? { reason: reason.trim() } : {};
      await post(sessionUrl(session, "/approvals"), { approval_id: approval.id, answer: word, ...why });
      onAnswered();
    });
  const isHost = approval.tool === "host";
  const tool = cleanText(approval.tool);
  const args = readArguments(approval.arguments);
  const { summary } = approval;
  const foreign = [approval.tool, summary, ...args.map((arg) => arg.value)];
  return (
    <div className="rounded-lg border-2 border-warn bg-surface p-4" data-testid="approval">
      <h3 className="font-semibold">
        <span aria-hidden="true" className="text-warn">
          ?{" "}
        </span>
        {isHost ? "A command wants to reach a host" : `The agent wants to call ${tool}`}
      </h3>
      {summary && !args.some((arg) => arg.value === summary) ? <p className="mt-1 font-mono text-sm wrap-anywhere"><Shown text={summary} /></p> : null}
      <HiddenBanner texts={foreign} />
      <dl className="mt-2 grid gap-2 text-sm">
        {args.map((arg) => (
          <div key={arg.name} className="grid gap-1 sm:grid-cols-[8rem_minmax(0,1fr)]">
            <dt className="text-muted">{arg.name}</dt>
            <dd tabIndex={0} className="max-h-60 overflow-auto font-mono wrap-anywhere whitespace-pre-wrap">
              <Shown text={arg.value} max={MAX_ARGUMENT} />
            </dd>
          </div>
        ))}
      </dl>
      <div className="mt-3 flex flex-wrap items-center gap-2">
        <button type="button" className="button button-main" disabled={action.isBusy} onClick={() => answer("allow")}>
          Allow once
        </button>
        {/* Each host is opened by itself: one answer for all later ones is no answer the server takes. */}
        {isHost ? null : (
          <button type="button" className="button" disabled={action.isBusy} onClick={() => answer("allow_tool")}>
            {`Allow ${tool} in this run`}
          </button>
        )}
        <button type="button" className="button button-bad" disabled={action.isBusy} onClick={() => answer("deny")}>
          Deny
        </button>
        <input
          className="field min-w-40 flex-1"
          aria-label="Reason for a denial"
          placeholder="Reason, if you deny"
          value={reason}
          maxLength={1000}
          onChange={(event) => setReason(event.target.value)}
        />
      </div>
      {action.error ? (
        <div className="mt-3">
          <ErrorBox error={action.error} />
        </div>
      ) : null}
    </div>
  );
}
