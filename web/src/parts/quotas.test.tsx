import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import type { Quotas } from "../api/client";
import { QuotaTables } from "./quotas";

afterEach(cleanup);

const none = { used: 0, limit: null };
const resources = { memory_bytes: none, cpu_millis: none, disk_bytes: none };
const quotas: Quotas = {
  user: "ann",
  running_sessions: { used: 1, limit: 16 },
  queued_sessions: { used: 0, limit: 64 },
  sandboxes: { used: 2, limit: 16 },
  upload_bytes: { used: 1024, limit: 4 * 2 ** 30 },
  resources: { ...resources, memory_bytes: { used: 3 * 2 ** 30, limit: 4 * 2 ** 30 }, cpu_millis: { used: null, limit: null } },
  all_users: null,
  requests_per_second: 200,
  each_sandbox: { memory_bytes: null, cpu_millis: null, disk_bytes: null, processes: null },
};

test("what is used is told beside the quota, and where there is none that is said", () => {
  const { rerender } = render(<QuotaTables quotas={quotas} />);
  expect(screen.getByText("Quotas of ann")).toBeTruthy();
  expect(screen.getByText("3.0 GiB of 4.0 GiB")).toBeTruthy();
  expect(screen.getByRole("meter", { name: "Memory" }).getAttribute("aria-valuenow")).toBe("75");
  expect(screen.getByText("no limit, no quota")).toBeTruthy();
  expect(screen.queryByText("Quotas of all users")).toBeNull();
  rerender(<QuotaTables quotas={{ ...quotas, all_users: { ...resources, cpu_millis: { used: 1500, limit: 2000 } } }} />);
  expect(screen.getByText("1.5 of 2")).toBeTruthy();
});
