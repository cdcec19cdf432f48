// What a session begins with: a source of the operator's, or a folder that the user uploads and takes along.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import AxeBuilder from "@axe-core/playwright";
import { answer, expect, test } from "./server";

let dir = "";
test.beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "glovebox-upload-"));
  for (const path of ["app/src", "app/.git", "reference"]) mkdirSync(join(dir, path), { recursive: true });
  writeFileSync(join(dir, "app/src/main.txt"), "from the folder\n");
  writeFileSync(join(dir, "app/.git/config"), "[core]\n");
  writeFileSync(join(dir, "reference/known.txt"), "of the operator\n");
});
test.afterEach(() => rmSync(dir, { recursive: true }));

test("a folder is uploaded, worked on, and taken along as an archive", async ({ page, server, problems }) => {
  const { work } = await server.start({
    work: [answer("", { name: "Bash", arguments: { command: "cat src/main.txt; echo made > made.txt" } }), answer("Ended.")],
  });
  await server.logIn(page);
  await page.getByLabel("Workspace").selectOption({ label: "Upload an archive or a folder…" });
  const start = page.getByRole("button", { name: "Start session" });
  await page.getByLabel("What is to be done?").fill("work on it");
  await expect(start).toBeDisabled();

  // What is no archive is refused in words, and another one can be chosen.
  await page.getByLabel("Archive (tar or tar.gz)").setInputFiles({ name: "a.tar", mimeType: "application/x-tar", buffer: Buffer.from("no archive") });
  await expect(page.getByRole("alert")).toContainText("neither tar nor tar.gz");
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    const { violations } = await new AxeBuilder({ page }).analyze();
    expect(violations.map(({ id }) => id)).toEqual([]);
  }
  await page.getByLabel("Folder", { exact: true }).setInputFiles(join(dir, "app"));
  await expect(page.getByText("Uploaded: 1 file, 16 B. 1 files of its repository were left out.")).toBeVisible();
  await expect(page.getByRole("alert")).toHaveCount(0);

  await page.getByText("Options").click();
  await page.getByLabel("Model").fill(work ?? "");
  await expect(page.getByLabel(/^Apply the changes/)).toBeDisabled();
  await start.click();
  await expect(page.getByText("Ended.").first()).toBeVisible();
  await expect(page.getByTestId("call").first()).toContainText("from the folder");
  await page.getByRole("link", { name: "Changes" }).click();
  await expect(page.getByText("1 path changed")).toBeVisible();
  await expect(page.getByText("The session began with an upload")).toBeVisible();
  await expect(page.getByRole("button", { name: /^Apply/ })).toHaveCount(0);
  await expect(page.getByRole("checkbox")).toHaveCount(0);
  const waiting = page.waitForEvent("download");
  await page.getByRole("link", { name: "Download workspace" }).click();
  const download = await waiting;
  expect(download.suggestedFilename()).toMatch(/^s-.*\.tar\.gz$/);
  const listed = spawnSync("tar", ["-tzf", await download.path()], { encoding: "utf8" });
  expect(listed.stdout.split("\n").filter(Boolean).sort()).toEqual(["made.txt", "src/", "src/main.txt"]);

  // It is there for the next session.
  await page.goto(server.url);
  await expect(page.getByLabel("Workspace").locator("option", { hasText: /^u-.*1 file, 16 B/ })).toHaveCount(1);
  expect(problems).toEqual([]);
});

test("a source is chosen by its name, and says when it takes nothing back", async ({ page, server, problems }) => {
  const reads = answer("", { name: "Bash", arguments: { command: "cat known.txt; echo more >> known.txt" } });
  const { work } = await server.start({ work: [reads, answer("Ended.")] }, `[serve.sources]\nreference = ${JSON.stringify(join(dir, "reference:ro"))}\n`);
  await server.logIn(page);
  await page.getByLabel("Workspace").selectOption({ label: "reference (takes no changes back)" });
  await page.getByLabel("What is to be done?").fill("read it");
  await page.getByText("Options").click();
  await page.getByLabel("Model").fill(work ?? "");
  await page.getByRole("button", { name: "Start session" }).click();
  await expect(page.getByText("source reference")).toBeVisible();
  await expect(page.getByText("Ended.").first()).toBeVisible();
  await page.getByRole("link", { name: "Changes" }).click();
  await expect(page.getByText("takes no changes back")).toBeVisible();
  await expect(page.getByRole("link", { name: "Download patch" })).toBeVisible();
  expect(problems).toEqual([]);
});
