// The ports that programs of a session's sandbox listen on, each with a link to its preview.
import { type PortList, type Session, sessionUrl } from "../api/client";
import { withBase } from "../base";
import { usePolled } from "../model/hooks";
import { Empty, ErrorBox, Loading } from "../parts/states";

export function PortsView({ session }: { session: Session }) {
  const { data, error, reload } = usePolled<PortList>(sessionUrl(session.id, "/ports"), 3000);
  return (
    <section aria-label="Ports" className="mx-auto grid w-full max-w-4xl gap-4">
      {error && !error.isOffline ? <ErrorBox error={error} onRetry={reload} /> : null}
      {!data && !error ? <Loading what="the ports" /> : null}
      {data ? <Ports list={data} session={session} /> : null}
    </section>
  );
}

export function Ports({ list, session }: { list: PortList; session: Session }) {
  if (!list.is_running) {
    return (
      <Empty title="The sandbox is not running">It stopped because nobody used it, and its programs ended. A message or a terminal starts it again.</Empty>
    );
  }
  // A program may listen at several addresses of one port.
  const byPort = new Map<number, string[]>();
  for (const { port, address } of list.ports) byPort.set(port, [...(byPort.get(port) ?? []), address]);
  const ports = [...byPort];
  if (ports.length === 0) {
    return (
      <Empty title="No program is listening">A web server that the agent or you start in the sandbox appears here, and can be opened in this browser.</Empty>
    );
  }
  return (
    <>
      <ul className="card divide-y divide-line overflow-hidden text-sm">
        {ports.map(([port, addresses]) => (
          <li key={port} className="flex flex-wrap items-center gap-x-4 gap-y-2 px-4 py-2">
            <span className="font-mono font-medium">{port}</span>
            <span className="min-w-0 flex-1 font-mono text-xs wrap-anywhere text-muted">{addresses.join(", ")}</span>
            <a
              className="button"
              href={withBase(sessionUrl(session.id, `/previews/${port}`))}
              target="_blank"
              rel="noopener noreferrer"
              aria-label={`Open preview of port ${port} in a new tab`}
            >
              Open preview
            </a>
          </li>
        ))}
      </ul>
      <p className="text-sm text-muted">
        A preview opens in a new tab, at an address of its own. What it shows comes from programs in the sandbox: do not type passwords into it.
      </p>
    </>
  );
}
