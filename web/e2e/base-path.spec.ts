// The interface below a path, as behind a proxy that serves other things beside it.
import { expect, test } from "./server";

test("every page, stream and file lies below the server's path", async ({ page, server, problems }) => {
  await server.start({}, "", "/tools/box");
  await server.logIn(page);
  await server.begin(page, "write a small program");
  await expect(page.getByText("4 turns")).toBeVisible();
  expect(new URL(page.url()).pathname).toMatch(/^\/tools\/box\/sessions\/s-/);

  await page.getByRole("link", { name: "Changes" }).click();
  await expect(page.getByText("3 paths changed")).toBeVisible();
  const download = page.waitForEvent("download");
  await page.getByRole("link", { name: "Download patch" }).click();
  expect((await download).suggestedFilename()).toMatch(/\.patch$/);
  await page.getByRole("link", { name: "Files" }).click();
  await page.getByRole("link", { name: /count\.sh/ }).click();
  await expect(page.getByRole("group", { name: "Content" })).toContainText("#!/bin/sh");
  // A deep address by itself, and the way back.
  await page.reload();
  await expect(page.getByRole("group", { name: "Content" })).toContainText("#!/bin/sh");
  await page.goBack();
  await page.getByRole("link", { name: "Terminal" }).click();
  await expect(page.getByTestId("shell-state")).toContainText("Connected");

  await page.getByRole("link", { name: "Health" }).click();
  await expect(page.getByRole("heading", { name: "Health" })).toBeVisible();
  await page.getByRole("link", { name: "API", exact: true }).click();
  await expect(page.getByText("/tools/box").first()).toBeVisible();
  await page.getByRole("button", { name: "Log out" }).click();
  await expect(page.getByLabel("Token")).toBeVisible();
  expect(problems).toEqual([]);
});
