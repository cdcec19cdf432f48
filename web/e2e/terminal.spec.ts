// A shell of a session's sandbox in the page.
import type { Page } from "@playwright/test";
import { expect, test, type TestServer } from "./server";

async function openTerminal(page: Page, server: TestServer): Promise<void> {
  await server.start();
  await server.logIn(page);
  await server.begin(page, "write a small program");
  await expect(page.getByText("4 turns")).toBeVisible();
  await page.getByRole("link", { name: "Terminal" }).click();
  await expect(page.getByTestId("shell-state")).toContainText("Connected");
}

test("a command is typed and its output is seen, in its colours and in the size of the window", async ({ page, server, problems }) => {
  await openTerminal(page, server);
  const rows = page.locator(".xterm-rows");
  await page.keyboard.type("cat sample.txt | wc -l; echo $((6 * 7))-seen\n");
  await expect(rows).toContainText("42-seen");
  await page.keyboard.type("printf '\\033[38;2;10;90;60mgree%s\\033[0m\\n' nish\n");
  await expect(rows.getByText("greenish", { exact: true })).toHaveCSS("color", "rgb(10, 90, 60)");
  await page.keyboard.type("printf '\\033[31mredd%s\\033[0m\\n' ish\n");
  await expect(rows.getByText("reddish", { exact: true })).toHaveCSS("color", "rgb(166, 43, 43)");
  await page.emulateMedia({ colorScheme: "dark" });
  await expect(rows.getByText("reddish", { exact: true })).toHaveCSS("color", "rgb(242, 154, 146)");

  const columns = async (word: string) => {
    await page.keyboard.type(`echo ${word}-$(stty size | cut -d' ' -f2)-\n`);
    const line = rows.getByText(new RegExp(`^${word}-\\d+-$`));
    await expect(line).toBeVisible();
    return Number((await line.textContent())?.split("-")[1]);
  };
  expect(await columns("wide")).toBeGreaterThan(100);
  await page.setViewportSize({ width: 390, height: 800 });
  let tries = 0;
  await expect(async () => expect(await columns(`thin${tries++}`)).toBeLessThan(60)).toPass();
  expect(problems).toEqual([]);
});

test("the keyboard can leave; an end is told and a new shell begins", async ({ page, server, problems }) => {
  await openTerminal(page, server);
  const state = page.getByTestId("shell-state");
  await expect(page.getByLabel("Terminal input")).toBeFocused();
  await page.keyboard.press("Tab");
  await expect(page.getByLabel("Terminal input")).toBeFocused();
  await page.keyboard.press("Control+F6");
  await expect(page.getByRole("button", { name: "New shell" })).toBeFocused();
  await page.getByLabel("Terminal input").focus();
  await page.keyboard.press("Control+u");
  await page.keyboard.type("exit 3\n");
  await expect(state).toHaveText("The shell ended with exit 3.");
  await page.getByRole("button", { name: "New shell" }).click();
  await expect(state).toContainText("Connected");
  server.cut();
  await expect(state).toHaveText("The connection was cut, which ends the shell.");
  await page.getByRole("button", { name: "New shell" }).click();
  await expect(state).toContainText("No shell could be opened");
  server.mend();
  await page.getByRole("button", { name: "New shell" }).click();
  await expect(state).toContainText("Connected");
  await page.keyboard.type("echo $((6 * 7))-again\n");
  await expect(page.locator(".xterm-rows")).toContainText("42-again");
  expect(problems).toEqual([]);
});
