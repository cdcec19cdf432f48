// How much of what the user may have at the same time is used: a row with a bar for each quota.
import type { Quotas } from "../api/client";
import { formatBytes } from "../model/text";

type Amount = { used?: number | null; limit?: number | null };

interface Row {
  name: string;
  amount: Amount;
  show: (value: number) => string;
}

const count = (value: number) => String(value);
const processors = (millis: number) => String(Math.round(millis / 10) / 100);

export function QuotaTables({ quotas, hasSandboxes = true }: { quotas: Quotas; hasSandboxes?: boolean }) {
  const { resources, all_users: all } = quotas;
  return (
    <>
      <QuotaTable
        title={`Quotas of ${quotas.user}`}
        rows={[
          { name: "Sessions at work", amount: quotas.running_sessions, show: count },
          { name: "Sessions that wait", amount: quotas.queued_sessions, show: count },
          ...(hasSandboxes ? [{ name: "Sandboxes", amount: quotas.sandboxes, show: count }] : []),
          ...resourceRows(resources),
          { name: "Uploads", amount: quotas.upload_bytes, show: formatBytes },
        ]}
      />
      {all ? <QuotaTable title="Quotas of all users" rows={resourceRows(all)} /> : null}
    </>
  );
}

function resourceRows(resources: Quotas["resources"]): Row[] {
  return [
    { name: "Memory", amount: resources.memory_bytes, show: formatBytes },
    { name: "Processors", amount: resources.cpu_millis, show: processors },
    { name: "Disk", amount: resources.disk_bytes, show: formatBytes },
  ];
}

function QuotaTable({ title, rows }: { title: string; rows: Row[] }) {
  return (
    <section className="grid gap-2">
      <h2 className="font-medium">{title}</h2>
      <ul className="card divide-y divide-line">
        {rows.map((row) => (
          <QuotaRow key={row.name} row={row} />
        ))}
      </ul>
    </section>
  );
}

function QuotaRow({ row }: { row: Row }) {
  const { used, limit } = row.amount;
  const text = used === null || used === undefined ? "no limit" : row.show(used);
  const share = typeof limit === "number" && limit > 0 ? Math.min(1, (used ?? limit) / limit) : null;
  return (
    <li className="flex flex-wrap items-center gap-x-4 gap-y-1 px-4 py-3 text-sm">
      <span className="w-40">{row.name}</span>
      <span className="min-w-0 flex-1 basis-40">
        {share === null ? null : (
          <span
            role="meter"
            aria-label={row.name}
            aria-valuemin={0}
            aria-valuemax={100}
            aria-valuenow={Math.round(share * 100)}
            className="block h-1.5 overflow-hidden rounded-full bg-sunken"
          >
            <span className={`block h-full ${share >= 0.9 ? "bg-warn" : "bg-accent"}`} style={{ width: `${share * 100}%` }} />
          </span>
        )}
      </span>
      <span className="text-muted tabular-nums">
        {text}
        {typeof limit === "number" ? ` of ${row.show(limit)}` : ", no quota"}
      </span>
    </li>
  );
}
