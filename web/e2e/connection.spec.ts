// Connections that are cut, and a server that goes and comes back under the page.
import { answer, expect, test } from "./server";

const COUNT = answer("Counting.", { name: "Bash", arguments: { command: "for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.5; done" } });

test("a stream that is cut goes on where it was, with nothing twice", async ({ page, server, problems }) => {
  const { count } = await server.start({ count: [COUNT, answer("Counted.")] });
  await server.logIn(page);
  await server.begin(page, "count", count);
  await expect(page.getByRole("group", { name: "Output so far" })).toContainText("line 2");
  server.cut();
  await expect(page.getByTestId("offline")).toBeVisible();
  await expect(page.getByText("The connection to the session is lost")).toBeVisible();
  server.mend();
  await expect(page.getByTestId("offline")).toHaveCount(0);
  await expect(page.getByText("Counted.").first()).toBeVisible();
  await expect(page.getByText("Counting.")).toHaveCount(1);
  await expect(page.getByTestId("call")).toHaveCount(1);
  await expect(page.getByTestId("call").locator("summary")).toContainText("exit 0");
  expect(problems).toEqual([]);
});

test("a server that is killed and started again shows what became of the session", async ({ page, server, problems }) => {
  const { count } = await server.start({ count: [COUNT, answer("Counted.")] });
  await server.logIn(page);
  await server.begin(page, "count", count);
  await expect(page.getByRole("group", { name: "Output so far" })).toContainText("line 2");
  await server.kill();
  await expect(page.getByTestId("offline")).toBeVisible();
  await server.run();
  // Logins outlive the server; the page goes on by itself.
  await expect(page.getByTestId("offline")).toHaveCount(0);
  await expect(page.getByRole("definition").filter({ hasText: "Interrupted" })).toBeVisible();
  await expect(page.getByTestId("call").locator("summary")).toContainText("Interrupted");
  await page.getByLabel("Message").fill("go on");
  await page.getByRole("button", { name: "Send" }).click();
  await expect(page.getByRole("log").getByText("go on")).toBeVisible();
  await expect(page.getByRole("definition").filter({ hasText: "Completed" })).toBeVisible({ timeout: 30_000 });
  expect(problems).toEqual([]);
});
