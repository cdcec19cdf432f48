// What a user does with sessions, from the login to a restored checkpoint.
import { answer, expect, test } from "./server";

test("a new user begins a session, watches it, reads the diff, applies it, and goes back to a checkpoint", async ({
  page,
  server,
  problems,
}) => {
  await server.start();
  await page.goto(`${server.url}/status`);
  await expect(page.getByRole("heading", { name: "Health" })).toBeVisible();
  await server.logIn(page);
  await expect(page.getByText("No sessions yet")).toBeVisible();

  await server.begin(page, "write a small program");
  await expect(page.getByText("These are recorded answers")).toBeVisible();
  await expect(page.getByText("4 turns")).toBeVisible();
  const bash = page.getByTestId("call").filter({ hasText: "Bash" });
  await expect(bash.locator("summary")).toContainText("sh test.sh");
  await expect(bash.locator("summary")).toContainText("exit 0");
  await bash.locator("summary").click();
  await expect(bash.getByRole("group", { name: "Result" })).toContainText("passed");

  await page.getByRole("link", { name: "Changes" }).click();
  await expect(page.getByText("3 paths changed")).toBeVisible();
  await expect(page.getByRole("group", { name: "Diff of count.sh" })).toContainText("+ #!/bin/sh");
  const download = page.waitForEvent("download");
  await page.getByRole("link", { name: "Download patch" }).click();
  expect((await download).suggestedFilename()).toMatch(/\.patch$/);

  await page.getByLabel("Apply sample.txt").uncheck();
  await page.getByRole("button", { name: "Apply 2 of 3" }).click();
  await expect(page.getByText("2 paths were applied")).toBeVisible();
  await expect(page.getByText("1 path changed")).toBeVisible();
  await page.getByRole("button", { name: "Apply all" }).click();
  await expect(page.getByText("1 path was applied")).toBeVisible();
  await expect(page.getByText("No changes")).toBeVisible();

  await page.getByRole("link", { name: "Files" }).click();
  await page.getByRole("link", { name: /count\.sh/ }).click();
  await expect(page.getByRole("group", { name: "Content" })).toContainText("#!/bin/sh");
  await page.getByRole("link", { name: "workspace" }).click();
  await expect(page.getByRole("link", { name: /sample\.txt/ })).toBeVisible();

  await page.getByRole("link", { name: "Checkpoints" }).click();
  await expect(page.getByText("No checkpoints yet")).toBeVisible();
  await page.getByLabel("Comment of the checkpoint").fill("before more");
  await page.getByRole("button", { name: "Make checkpoint" }).click();
  await expect(page.getByText("Checkpoint v1 was made")).toBeVisible();
  await page.getByRole("button", { name: "Restore v1" }).click();
  await page.getByRole("button", { name: "Restore", exact: true }).click();
  await expect(page.getByText("The files are those of checkpoint v1")).toBeVisible();
  const before = page.url();
  await page.getByRole("button", { name: "Fork from v1" }).click();
  await expect(page).not.toHaveURL(before);
  await expect(page.getByText("These are recorded answers")).toBeVisible();

  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("button", { name: "Delete session" }).click();
  await expect(page.getByRole("heading", { name: "New session" })).toBeVisible();
  await expect(page.getByRole("listitem")).toHaveCount(1);
  expect(problems).toEqual([]);
});

test("a session that is shown works: output as it comes, a message, an end", async ({ page, server, problems }) => {
  const { slow } = await server.start({
    slow: [
      answer("", { name: "Bash", arguments: { command: "for i in 1 2 3 4 5 6 7 8 9; do echo line $i; sleep 0.4; done; sleep 60" } }),
      answer("Never said."),
    ],
  });
  await server.logIn(page);
  await server.begin(page, "wait", slow);
  const live = page.getByRole("group", { name: "Output so far" });
  await expect(live).toContainText("line 2");
  await expect(live).not.toContainText("line 9");
  await expect(page.getByTestId("call").locator("summary")).toContainText("Running");
  await page.getByLabel("Message").fill("one more thing");
  await page.getByLabel("Message").press("Control+Enter");
  await expect(page.getByLabel("Message")).toHaveValue("");
  await page.getByRole("button", { name: "Cancel" }).click();
  await expect(page.getByRole("button", { name: "Delete" })).toBeVisible();
  await expect(page.getByTestId("call").locator("summary")).not.toContainText("Running");
  expect(problems).toEqual([]);
});

test("a call that a rule asks about waits for the user", async ({ page, server, problems }) => {
  const call = (path: string) => ({ name: "Write", arguments: { path, content: "x" } });
  const { asks } = await server.start({ asks: [answer("", call("a.txt")), answer("", call("b.txt")), answer("Ended.")] }, '[policy]\nask = ["Write"]\n');
  await server.logIn(page);
  await server.begin(page, "write", asks);
  const question = page.getByTestId("approval");
  await expect(question).toContainText("The agent wants to call Write");
  await expect(question).toContainText("a.txt");
  await question.getByRole("button", { name: "Allow once" }).click();
  await expect(question).toContainText("b.txt");
  await question.getByLabel("Reason for a denial").fill("not this one");
  await question.getByRole("button", { name: "Deny" }).click();
  await expect(page.getByText("Ended.").first()).toBeVisible();
  await expect(question).toHaveCount(0);
  await expect(page.getByTestId("call").nth(0)).toContainText("Done");
  await expect(page.getByTestId("call").nth(1)).toContainText("not this one");
  await page.getByRole("link", { name: "Files" }).click();
  await expect(page.getByRole("link", { name: /a\.txt/ })).toBeVisible();
  await expect(page.getByRole("link", { name: /b\.txt/ })).toHaveCount(0);
  expect(problems).toEqual([]);
});
