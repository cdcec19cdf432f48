// The line below the header: what this server and its sandboxes are, how it stands, and when that was looked at.
import type { Environment, Followed, ServerStatus } from "../model/status";
import { cleanText } from "../model/text";

export function EnvironmentStrip({ followed, isOffline }: { followed: Followed; isOffline: boolean }) {
  const { status, environment } = followed;
  if (!environment && !status) return null;
  const state = isOffline ? "not reachable" : stateText(status);
  const isBad = isOffline || status?.state === "down" || environment?.state === "degraded";
  const facts = environment && environment.state !== "starting" ? factsText(environment) : "";
  const isLocal = (status?.placement ?? environment?.placement) === "local";
  const style = isLocal ? "border-bad bg-bad-soft text-bad" : "border-line bg-surface text-muted";
  return (
    <section aria-label="Environment" data-testid="environment-strip" className={`border-b text-xs ${style}`} title={environment ? tooltip(environment) : undefined}>
      <p className="mx-auto flex max-w-7xl flex-wrap items-baseline gap-x-3 px-4 py-1 sm:px-6">
        <span role="status" aria-live="polite" className={`order-first whitespace-nowrap sm:order-none ${isBad ? "font-medium text-bad" : ""}`}>
          {state}
        </span>
        {isLocal ? <strong>Tools work on this machine, without walls</strong> : null}
        <span className="min-w-0 basis-full wrap-anywhere sm:flex-1 sm:basis-60">{facts}</span>
        {environment && facts ? (
          <time className="order-first ml-auto whitespace-nowrap sm:order-none" dateTime={environment.captured_at}>
            {`seen ${new Date(environment.captured_at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}`}
          </time>
        ) : null}
      </p>
    </section>
  );
}

export function stateText(status: ServerStatus | null): string {
  if (!status) return "Connecting";
  if (status.state === "down") return "Down";
  if (status.startup) return `Starting: step ${status.startup.step} of ${status.startup.steps}, ${status.startup.name}`;
  return status.placement === "local" ? "Ready, no sandbox" : "Ready";
}

function listed(parts: string[]): string {
  return cleanText(parts.filter(Boolean).join(" · "));
}

function factsText({ host, sandbox, placement }: Environment): string {
  const user = host.user && host.hostname ? `${host.user}@${host.hostname}` : host.hostname || host.user;
  const outside = `Host: ${listed([user, host.os, host.arch])}`;
  if (placement === "local" || !sandbox) return outside;
  const programs = sandbox.programs.filter(({ name }) => name === "python3" || name === "node");
  return `${outside} | Sandbox: ${listed([sandbox.os, sandbox.kernel, ...programs.map(({ name, version }) => `${name} ${version}`)])}`;
}

function tooltip({ host, sandbox, problem, captured_at }: Environment): string {
  const programs = (list: { name: string; version: string }[]) => list.map(({ name, version }) => `${name} ${version}`.trim()).join(", ");
  const lines = [
    `Host: ${listed([host.os, host.kernel, host.arch, host.time_zone, host.directory])}`,
    `Programs used there: ${programs(host.programs)}`,
  ];
  if (sandbox) {
    lines.push(`Sandbox: ${listed([sandbox.os, sandbox.kernel, sandbox.arch, sandbox.time_zone, sandbox.directory])}`);
    lines.push(`Programs found there: ${programs(sandbox.programs)}`);
  }
  if (problem) lines.push(`The sandbox could not be looked at: ${problem}`);
  lines.push(`Captured at ${captured_at}`);
  return lines.map(cleanText).join("\n");
}
