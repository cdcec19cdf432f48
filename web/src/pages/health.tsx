// Whether the server can work, component by component, and how much of the user's quotas is used.
import { type Health, type Quotas, getQuotas } from "../api/client";
import { withBase } from "../base";
import { usePolled, useTitle } from "../model/hooks";
import { QuotaTables } from "../parts/quotas";
import { Badge, ErrorBox, Loading } from "../parts/states";
import { Link } from "../router";

const NAMES: Record<string, string> = { sandbox: "Sandboxes", tools: "Tools", sessions: "Sessions", disk: "Disk", pool: "Sandboxes ahead" };

export function HealthPage() {
  useTitle("Health");
  const { data, error, reload } = usePolled<Health>("/health/ready", 10_000);
  const { data: quotas } = usePolled<Quotas | null>("/api/quotas", 10_000, getQuotas);
  return (
    <div className="mx-auto grid max-w-3xl gap-4">
      <div className="flex flex-wrap items-center gap-3">
        <h1 className="text-xl font-semibold">Health</h1>
        {data ? <ReadyBadge isReady={data.is_ready} words={["Ready", "Not ready"]} /> : null}
        <button type="button" className="button ml-auto" onClick={reload}>
          Check again
        </button>
      </div>
      {error && !data ? <ErrorBox error={error} onRetry={reload} /> : null}
      {!data && !error ? <Loading what="the state of the server" /> : null}
      {data ? (
        <>
          {data.placement === "local" ? (
            <p role="alert" className="rounded-lg border border-bad bg-bad-soft px-4 py-3 text-sm text-bad">
              Tools work on this machine itself, without a sandbox.
            </p>
          ) : null}
          <ul className="card divide-y divide-line">
            {data.components.map((component) => (
              <li key={component.name} className="flex flex-wrap items-start gap-x-4 gap-y-1 px-4 py-3">
                <h2 className="w-32 font-medium">{NAMES[component.name] ?? component.name}</h2>
                <p className="min-w-0 flex-1 basis-60 text-sm wrap-anywhere text-muted">{component.detail}</p>
                <ReadyBadge isReady={component.is_ready} words={["Ready", "Not ready"]} />
              </li>
            ))}
          </ul>
          {quotas ? <QuotaTables quotas={quotas} hasSandboxes={data.placement !== "local"} /> : null}
          <p className="text-sm text-muted">
            {data.placement === "local" ? "A command is tried on this machine" : "A sandbox is started, tried and ended"} for this at most every
            10 seconds. Counts of everything are at{" "}
            <a className="link" href={withBase("/metrics")}>
              /metrics
            </a>
            , the description of the API is at{" "}
            <Link className="link" href="/api-docs">
              /api-docs
            </Link>
            , for programs at{" "}
            <a className="link" href={withBase("/api/openapi.json")}>
              /api/openapi.json
            </a>
            .
          </p>
        </>
      ) : null}
    </div>
  );
}

function ReadyBadge({ isReady, words }: { isReady: boolean; words: [string, string] }) {
  return isReady ? (
    <Badge style="bg-good-soft text-good" mark="✓" label={words[0]} />
  ) : (
    <Badge style="bg-bad-soft text-bad" mark="✕" label={words[1]} />
  );
}
