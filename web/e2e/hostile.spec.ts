// What a hostile model, tool or file writes does nothing in the page.
import { answer, expect, test } from "./server";

const MARKUP = '<img src=x onerror="alert(1)"><script>alert(2)</script><a href="javascript:alert(3)">x</a>';

test("markup, terminal sequences and floods stay text, and the page stays alive", async ({ page, server, problems }) => {
  const quoted = MARKUP.replaceAll("'", "'\\''");
  const { hostile } = await server.start({
    hostile: [
      answer(`${MARKUP}\n\n\`\`\`\n${MARKUP}\n\`\`\`\n[link](javascript:alert(4))`, {
        name: "Bash",
        arguments: { command: `printf '\\033[31mred\\033[0m\\033]0;title\\007\\033[2J%s\\n' '${quoted}'`, description: MARKUP },
      }),
      answer("", { name: "Write", arguments: { path: `${"<b>"}.html`, content: `${MARKUP}\u202e\n` } }),
      answer("", { name: "Bash", arguments: { command: "for i in $(seq 40); do head -c 1250000 /dev/zero | tr '\\0' x; echo; done" } }),
      answer(`Survived. ${MARKUP}`),
    ],
  });
  await server.logIn(page);
  await server.begin(page, MARKUP, hostile);
  await expect(page.getByText("Survived.").first()).toBeVisible({ timeout: 45_000 });
  for (const summary of await page.getByTestId("call").locator("summary").all()) await summary.click();
  const log = page.getByRole("log");
  await expect(log).toContainText("alert(2)");
  expect(await log.evaluate((element) => element.querySelectorAll("img, script, a, iframe, b").length)).toBe(0);
  const text = (await log.textContent()) ?? "";
  expect(text).toContain("red");
  expect(text).not.toContain("\u001b");
  expect(text).not.toContain("\u202e");
  // 50 MB were written; the page holds a bounded part.
  expect(text.length).toBeLessThan(500_000);

  await page.getByRole("link", { name: "Changes" }).click();
  const diff = page.getByRole("group", { name: "Diff of <b>.html" });
  await expect(diff).toContainText("1 hidden character: RLO");
  await expect(diff.locator(".sign")).toHaveText("RLO");
  await expect(diff.locator(".sign")).toHaveAttribute("title", /U\+202E/);
  await page.getByRole("link", { name: "Files" }).click();
  await page.getByRole("link", { name: /<b>\.html/ }).click();
  await expect(page.getByRole("group", { name: "Content" })).toContainText("alert(1)");
  await page.goto(server.url);
  await expect(page.getByRole("listitem")).toContainText("alert(2)");
  expect(await page.evaluate(() => document.title)).toBe("Glovebox");
  expect(problems).toEqual([]);
});
