import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import type { Changes, Session } from "../api/client";
import { ChangesView } from "./changes";
import { HealthPage } from "./health";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const session = { id: "s-1", state: "completed", placement: "sandbox", takes_changes: true, sandbox: "b", approvals: [] } as unknown as Session;

const conflict = (path: string, reason: string) => ({ path, reason, theirs: `${path}.theirs`, is_text: true, project_bytes: 3, sandbox_bytes: 4 });

const changes = (some: Partial<Changes>): Changes => ({
  digest: "d1",
  changes: [],
  refused: [],
  conflicts: [],
  files: [],
  last_apply: null,
  ...some,
});

/** Answers requests by their path; those that change something are noted. */
function serve(answers: Record<string, () => Response>): { bodies: unknown[]; asked: string[] } {
  const bodies: unknown[] = [];
  const asked: string[] = [];
  vi.stubGlobal("matchMedia", () => ({ matches: true, addEventListener: () => {}, removeEventListener: () => {} }));
  vi.stubGlobal("fetch", async (path: string, init: RequestInit = {}) => {
    asked.push(path);
    if (typeof init.body === "string") bodies.push(JSON.parse(init.body));
    const answer = answers[path];
    if (!answer) throw new Error(`nothing answers ${path}`);
    return answer();
  });
  return { bodies, asked };
}

const DIFF = "/api/sessions/s-1/diff";
const LIST = `${DIFF}?format=json`;
const APPLY = "/api/sessions/s-1/apply";
const patch = (digest: string) => new Response("", { headers: { etag: `W/"${digest}"` } });

it("shows conflicts with both versions, and sends a choice for each file with the digest of what is shown", async () => {
  const list = changes({
    changes: [
      { path: "new.txt", kind: "added", flags: [] },
      { path: "mine.txt.theirs", kind: "added", flags: [] },
    ],
    conflicts: [conflict("mine.txt", "changed-on-host"), conflict("gone.txt", "deleted-in-sandbox")],
  });
  const { bodies } = serve({
    [LIST]: () => Response.json(list),
    [DIFF]: () => patch("d1"),
    [`/api/sessions/s-1/conflicts/mine.txt?side=project`]: () => new Response("person"),
    [`/api/sessions/s-1/conflicts/mine.txt?side=sandbox`]: () => new Response("agent\u202e"),
    [APPLY]: () => Response.json({ outcome: {} }),
  });
  render(<ChangesView session={session} />);
  await screen.findByText("Conflicts (2)");
  expect(screen.getByText("1", { selector: "strong" })).toBeTruthy();
  fireEvent.click(screen.getByRole("button", { name: /mine\.txt/ }));
  const ours = await screen.findByRole("group", { name: "In the project: mine.txt" });
  await waitFor(() => expect(ours.textContent).toContain("person"));
  const theirs = screen.getByRole("group", { name: "In the session: mine.txt" });
  await waitFor(() => expect(theirs.textContent).toContain("1 hidden character: RLO"));
  fireEvent.change(screen.getByLabelText("Conflict in mine.txt"), { target: { value: "theirs" } });
  fireEvent.click(screen.getByLabelText("Apply gone.txt"));
  fireEvent.click(screen.getByRole("button", { name: "Apply 2 of 3" }));
  await waitFor(() => expect(bodies).toEqual([{ paths: ["new.txt", "mine.txt"], conflicts: { "mine.txt": "theirs" }, digest: "d1" }]));
});

it("says that there are no changes only without open conflicts, and shows the last Apply", async () => {
  const last_apply = {
    at_unix_ms: 1,
    counts: { applied: 2, already_there: 0, conflicts: 1, refused: 0 },
    conflicts: [{ path: "mine.txt", reason: "changed-on-host", theirs: "mine.txt.theirs" }],
  };
  serve({ [LIST]: () => Response.json(changes({ conflicts: [conflict("mine.txt", "changed-on-host")], last_apply })), [DIFF]: () => patch("d1") });
  render(<ChangesView session={session} />);
  await screen.findByText("Conflicts (1)");
  expect(screen.queryByText("No changes")).toBeNull();
  expect(screen.getByRole("status").textContent).toContain("2 paths were applied, 1 in conflict");
  cleanup();
  serve({ [LIST]: () => Response.json(changes({ last_apply })), [DIFF]: () => patch("d1") });
  render(<ChangesView session={session} />);
  await screen.findByText("No changes");
});

it("reads list and patch again until they are of one moment, and applies nothing of two", async () => {
  let moment = 0;
  const list = () => Response.json(changes({ digest: `d${++moment}`, changes: [{ path: "a", kind: "added", flags: [] }] }));
  const { asked } = serve({ [LIST]: list, [DIFF]: () => patch(moment < 2 ? "other" : `d${moment}`) });
  render(<ChangesView session={session} />);
  const button = await screen.findByRole("button", { name: "Apply all" });
  expect(button.hasAttribute("disabled")).toBe(false);
  expect(asked.filter((path) => path === LIST)).toHaveLength(2);
  cleanup();
  serve({ [LIST]: list, [DIFF]: () => patch("other") });
  render(<ChangesView session={session} />);
  expect((await screen.findByRole("button", { name: "Apply all" })).hasAttribute("disabled")).toBe(true);
});

it("loads the changes again when they are not those that were shown, and keeps the reason", async () => {
  let digest = "d1";
  const refusal = { error: { code: "changed", message: "files have changed", remedy: null } };
  const { bodies, asked } = serve({
    [LIST]: () => Response.json(changes({ digest, changes: [{ path: "a", kind: "added", flags: [] }] })),
    [DIFF]: () => patch(digest),
    [APPLY]: () => Response.json(refusal, { status: 409 }),
  });
  render(<ChangesView session={session} />);
  const button = await screen.findByRole("button", { name: "Apply all" });
  digest = "d2";
  fireEvent.click(button);
  await screen.findByText("Files have changed.");
  await waitFor(() => expect(asked.filter((path) => path === LIST)).toHaveLength(2));
  fireEvent.click(screen.getByRole("button", { name: "Apply all" }));
  await waitFor(() => expect(bodies.map((body) => (body as { digest: string }).digest)).toEqual(["d1", "d2"]));
});

it("claims no sandbox where tools work on this machine", async () => {
  const claims = () => (document.body.textContent ?? "").replace(/without a sandbox|no sandbox/gi, "").match(/sandbox/i);
  const health = {
    is_ready: true,
    placement: "local",
    components: [{ name: "tools", is_ready: true, detail: "a command was tried on this machine in 3 ms" }],
  };
  const amount = { used: 0, max: 1 };
  const resources = { memory_bytes: amount, cpu_millis: amount, disk_bytes: amount };
  const quotas = { user: "admin", running_sessions: amount, queued_sessions: amount, sandboxes: amount, upload_bytes: amount, resources };
  serve({
    "/health/ready": () => Response.json(health),
    "/api/quotas": () => Response.json(quotas),
    [LIST]: () => Response.json(changes({})),
    [DIFF]: () => patch("d1"),
  });
  render(<HealthPage />);
  await screen.findByText(/Quotas of admin/);
  expect(screen.getByText("Tools")).toBeTruthy();
  expect(claims()).toBeNull();
  cleanup();
  render(<ChangesView session={{ ...session, placement: "local", sandbox: null } as unknown as Session} />);
  await screen.findByText("No changes");
  expect(claims()).toBeNull();
});
