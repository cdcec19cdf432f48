// The page that describes the API: what the server says of itself, found by a filter, and commands that work as they stand.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, test } from "./server";

test("the commands of the page are found, opened by address, and work as they stand", async ({ page, server, problems }) => {
  await server.start();
  await server.logIn(page);
  await page.getByRole("link", { name: "API", exact: true }).first().click();
  await expect(page.getByRole("heading", { name: /Glovebox API/ })).toBeVisible();
  const all = await page.getByTestId("operation").count();
  expect(all).toBeGreaterThan(50);

  await page.getByLabel("Filter operations").fill("/health/live");
  await expect(page.getByTestId("operation")).toHaveCount(1);
  await expect(page.getByRole("status").filter({ hasText: `1 of ${all} operations` })).toBeVisible();
  await page.getByLabel("Filter operations").fill("no such words");
  await expect(page.getByText("No operation matches")).toBeVisible();

  // An address leads to its operation, whatever the filter says.
  await page.evaluate(() => {
    window.location.hash = "#post-api-tasks";
  });
  const card = page.locator("#post-api-tasks");
  await expect(card.locator("summary").first()).toBeFocused();
  await expect(page.getByLabel("Filter operations")).toHaveValue("");
  await expect(card.getByText("Request body")).toBeVisible();
  await card.getByText("forms of workspace").click();
  await expect(card.getByText("with upload", { exact: true })).toBeVisible();

  const command = await card.getByLabel("Command of POST /api/tasks", { exact: true }).innerText();
  expect(command).toContain(`${server.url}/api/tasks`);
  // The connection goes through this process: it must not be waited for in a way that stops it.
  const { stdout } = await promisify(execFile)("sh", ["-c", `${command} --silent --fail-with-body`], {
    env: { PATH: process.env["PATH"], TOKEN: server.token },
  });
  expect(JSON.parse(stdout).session_id).toMatch(/^s-/);
  expect(problems).toEqual([]);
});

test("the page says that the server is away, and shows the description when it is back", async ({ page, server }) => {
  await server.start();
  await server.logIn(page);
  await expect(page.getByText("No sessions yet")).toBeVisible();
  // The page's own file first, which is asked for when it is opened.
  await page.getByRole("link", { name: "API", exact: true }).first().click();
  await expect(page.getByTestId("operation").first()).toBeVisible();
  await page.getByRole("link", { name: "Sessions", exact: true }).click();
  server.cut();
  await page.getByRole("link", { name: "API", exact: true }).first().click();
  await expect(page.getByRole("alert")).toBeVisible();
  server.mend();
  await page.getByRole("button", { name: "Try again" }).click();
  await expect(page.getByTestId("operation").first()).toBeVisible();
});
