// axe on every page, in both themes, and no page wider than its window at three widths.
import AxeBuilder from "@axe-core/playwright";
import { expect, test } from "./server";

const WIDTHS = [390, 820, 1440];

test("axe finds nothing, and every page fits its window", async ({ page, server, problems }) => {
  test.setTimeout(180_000);
  await server.start();
  const shots = process.env["SCREENSHOTS"];
  const look = async (name: string) => {
    for (const theme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
      for (const width of WIDTHS) {
        await page.setViewportSize({ width, height: 900 });
        if (shots) await page.screenshot({ path: `${shots}/${name}-${width}-${theme}.png`, fullPage: true });
        const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        expect(over, `${name} at ${width} px`).toBeLessThanOrEqual(0);
        const cut = await page.getByTestId("environment-strip").locator("span").evaluateAll((spans) =>
          spans.filter((span) => span.scrollWidth > span.clientWidth && span.clientWidth > 0).map((span) => span.textContent),
        );
        expect(cut, `text that the strip cuts at ${width} px`).toEqual([]);
      }
      const { violations } = await new AxeBuilder({ page }).analyze();
      const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`);
      expect(found, `${name} in ${theme}`).toEqual([]);
    }
    await page.setViewportSize({ width: 1440, height: 900 });
  };

  await page.goto(server.url);
  await expect(page.getByLabel("Token")).toBeVisible();
  await look("login");
  await server.fillToken(page);
  await expect(page.getByText("No sessions yet")).toBeVisible();
  await page.getByText("Options").click();
  await look("empty");
  await server.begin(page, "write a small program");
  await expect(page.getByText("4 turns")).toBeVisible();
  const session = page.url();
  for (const summary of await page.getByTestId("call").locator("summary").all()) await summary.click();
  await look("conversation");
  await page.goto(`${session}/changes`);
  await expect(page.getByText("3 paths changed")).toBeVisible();
  await look("changes");
  await page.goto(`${session}/files`);
  await expect(page.getByRole("link", { name: /count\.sh/ })).toBeVisible();
  await look("files");
  await page.goto(`${session}/files/count.sh`);
  await expect(page.getByRole("group", { name: "Content" })).toBeVisible();
  await look("file");
  await page.goto(`${session}/checkpoints`);
  await page.getByRole("button", { name: "Make checkpoint" }).click();
  await expect(page.getByText("Checkpoint v1 was made")).toBeVisible();
  await look("checkpoints");
  await page.getByRole("button", { name: "Restore v1" }).click();
  await look("confirm");
  await page.goto(`${session}/terminal`);
  await expect(page.getByTestId("shell-state")).toContainText("Connected");
  await page.getByLabel("Terminal input").pressSequentially("ls --color=always; printf '\\033[38;2;200;210;220mpale\\033[0m\\n'\n");
  await expect(page.locator(".xterm-rows")).toContainText("count.sh");
  await look("terminal");
  await page.goto(`${session}/ports`);
  await expect(page.getByText("No program is listening")).toBeVisible();
  await look("no-ports");
  await server.call(page, "Bash", { command: "exec python3 -m http.server 8123", background: true });
  await expect(page.getByRole("link", { name: "Open preview of port 8123 in a new tab" })).toBeVisible();
  await look("ports");
  await page.goto(`${server.url}/status`);
  await expect(page.getByRole("heading", { name: "Sandboxes" })).toBeVisible();
  await look("health");
  await page.goto(`${server.url}/api-docs#post-api-tasks`);
  await expect(page.getByText("Request body")).toBeVisible();
  await look("api-docs");
  await page.goto(server.url);
  await expect(page.getByRole("listitem")).toHaveCount(1);
  await look("sessions");
  await page.goto(`${session}x`);
  await expect(page.getByRole("alert")).toBeVisible();
  await look("missing");
  expect(problems).toEqual([]);
});
