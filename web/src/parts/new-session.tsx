// The form that begins a session.
import { type FormEvent, type KeyboardEvent, useState } from "react";
import { post, type TaskRequest, type WorkspaceChoice } from "../api/client";
import { useAction } from "../model/hooks";
import { Link, navigate } from "../router";
import { ErrorBox } from "./states";
import { WorkspaceField } from "./workspace-field";

/** A number above zero, or nothing. */
function limit(text: string): number | undefined {
  const value = Number(text);
  return text.trim() && Number.isFinite(value) && value > 0 ? value : undefined;
}

/** Submits the form of a text area on Ctrl+Enter, or Command+Enter. */
export function submitOnEnter(event: KeyboardEvent<HTMLTextAreaElement>): void {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  event.currentTarget.form?.requestSubmit();
}

export function NewSession() {
  const [task, setTask] = useState("");
  const [model, setModel] = useState("");
  const [phase, setPhase] = useState("");
  const [turns, setTurns] = useState("");
  const [minutes, setMinutes] = useState("");
  const [cost, setCost] = useState("");
  const [mustAsk, setMustAsk] = useState(true);
  const [mustApply, setMustApply] = useState(false);
  const [workspace, setWorkspace] = useState<WorkspaceChoice | null>(null);
  const [takesChanges, setTakesChanges] = useState(true);
  const [hasWorkspace, setHasWorkspace] = useState(true);
  // The same for every attempt to send this form, so that a repeated one begins no second session.
  const [key, setKey] = useState(newKey);
  const action = useAction();

  const submit = (event: FormEvent) => {
    event.preventDefault();
    const timeMin = limit(minutes);
    const maxTurns = limit(turns);
    const maxCost = limit(cost);
    const request: TaskRequest = {
      task,
      ask: mustAsk,
      apply: mustApply && takesChanges,
      ...(workspace ? { workspace } : {}),
      ...(model.trim() ? { model: model.trim() } : {}),
      ...(phase.trim() ? { phase: phase.trim() } : {}),
      limits: {
        ...(maxTurns ? { max_turns: Math.ceil(maxTurns) } : {}),
        ...(timeMin ? { max_time_s: Math.ceil(timeMin * 60) } : {}),
        ...(maxCost ? { max_cost_usd: maxCost } : {}),
      },
    };
    action.run(async () => {
      try {
        const begun = await post<{ session_id: string }>("/api/tasks", request, { "idempotency-key": key });
        navigate(`/sessions/${encodeURIComponent(begun.session_id)}`);
      } catch (error) {
        // An answer, even a refusal, ends the attempt; without one the same key is sent again.
        if (!(error instanceof Error && "isOffline" in error && error.isOffline)) setKey(newKey());
        throw error;
      }
    });
  };

  return (
    <form onSubmit={submit} className="card grid gap-3 p-4" aria-labelledby="new-title">
      <h1 id="new-title" className="text-lg font-semibold">
        New session
      </h1>
      <label className="grid gap-1">
        <span className="sr-only">What is to be done?</span>
        <textarea
          className="field min-h-24 resize-y py-2"
          placeholder="What is to be done?"
          required
          value={task}
          onChange={(event) => setTask(event.target.value)}
          onKeyDown={submitOnEnter}
        />
      </label>
      <WorkspaceField
        value={workspace}
        onChange={(value, canApply, isReady) => {
          setWorkspace(value);
          setTakesChanges(canApply);
          setHasWorkspace(isReady);
        }}
      />
      <details className="group text-sm">
        <summary className="w-fit list-none rounded-sm text-muted hover:text-ink [&::-webkit-details-marker]:hidden">
          <span aria-hidden="true" className="mr-1 inline-block group-open:rotate-90">
            ▸
          </span>
          Options
        </summary>
        <div className="mt-3 grid gap-3 sm:grid-cols-2 lg:grid-cols-5">
          <TextOption label="Model" hint="the server's own" value={model} onChange={setModel} />
          <TextOption label="Phase" hint="such as plan or review" value={phase} onChange={setPhase} />
          <TextOption label="Turns, at most" hint="the server's limit" value={turns} onChange={setTurns} isNumber />
          <TextOption label="Minutes, at most" hint="the server's limit" value={minutes} onChange={setMinutes} isNumber />
          <TextOption label="US dollars, at most" hint="the server's limit" value={cost} onChange={setCost} isNumber />
        </div>
        <div className="mt-3 grid gap-2">
          <Check label="Ask me about calls that a rule wants asked about" value={mustAsk} onChange={setMustAsk} />
          <Check
            label={takesChanges ? "Apply the changes when the work is done, without a review" : "Apply the changes when the work is done (this workspace takes none back)"}
            value={mustApply && takesChanges}
            onChange={setMustApply}
            isDisabled={!takesChanges}
          />
        </div>
      </details>
      {action.error ? <ErrorBox error={action.error} /> : null}
      <div className="flex items-center gap-3">
        <button type="submit" className="button button-main" disabled={action.isBusy || !task.trim() || !hasWorkspace}>
          {action.isBusy ? "Starting…" : "Start session"}
        </button>
        <span className="hidden text-sm text-muted sm:inline">Ctrl + Enter</span>
        <span className="ml-auto text-sm text-muted">
          Or from a program:{" "}
          <Link href="/api-docs#post-api-tasks" className="link">
            API
          </Link>
        </span>
      </div>
    </form>
  );
}

function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

interface TextOptionProps {
  label: string;
  hint: string;
  value: string;
  onChange: (value: string) => void;
  isNumber?: boolean;
}

function TextOption({ label, hint, value, onChange, isNumber = false }: TextOptionProps) {
  return (
    <label className="grid gap-1">
      <span>{label}</span>
      <input
        className="field text-sm"
        placeholder={hint}
        inputMode={isNumber ? "decimal" : undefined}
        pattern={isNumber ? "[0-9]*[.]?[0-9]+" : undefined}
        title={isNumber ? "a number above 0" : undefined}
        maxLength={256}
        value={value}
        onChange={(event) => onChange(event.target.value)}
      />
    </label>
  );
}

interface CheckProps {
  label: string;
  value: boolean;
  onChange: (value: boolean) => void;
  isDisabled?: boolean;
}

function Check({ label, value, onChange, isDisabled = false }: CheckProps) {
  return (
    <label className={`flex items-start gap-2 ${isDisabled ? "text-muted" : ""}`}>
      <input
        type="checkbox"
        className="mt-1 size-4 shrink-0 accent-accent"
        checked={value}
        disabled={isDisabled}
        onChange={(event) => onChange(event.target.checked)}
      />
      {label}
    </label>
  );
}
