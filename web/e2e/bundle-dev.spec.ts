// The page of `glovebox bundle dev` as authors of bundles use it: a tool is called, a mistake is saved and shown, and put right.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import AxeBuilder from "@axe-core/playwright";
import { test as base, expect } from "@playwright/test";

const BUNDLE = `import { tool } from "ai";
import { z } from "zod";
export const double = tool({
  description: "Doubles <img src=x onerror=alert(1)>",
  inputSchema: z.object({ x: z.number().min(2), note: z.string().optional() }),
  execute: async ({ x }) => { console.log("got", x); return x * 2; },
});
export const fails = tool({ description: "Fails", inputSchema: z.object({}), execute: async () => { throw new TypeError("<b>broken</b>"); } });
export const loops = tool({ description: "Never ends", inputSchema: z.object({}), execute: async () => { for (;;); } });
`;

class Author {
  private readonly dir = mkdtempSync(join(tmpdir(), "glovebox-author-"));
  private readonly file = join(this.dir, "tools.ts");
  private readonly child: ChildProcess;
  readonly url: Promise<string>;

  constructor() {
    this.save(BUNDLE);
    const program = process.env["GLOVEBOX_BIN"];
    if (!program) throw new Error("GLOVEBOX_BIN does not name the program; use `cargo xtask web --test BINARY`");
    const env = { PATH: process.env["PATH"], HOME: this.dir, GLOVEBOX_STATE: join(this.dir, "state") };
    this.child = spawn(program, ["bundle", "dev", this.file], { env, stdio: ["ignore", "ignore", "pipe"] });
    this.url = new Promise((done, fail) => {
      let said = "";
      this.child.stderr?.on("data", (data: Buffer) => {
        said += data.toString();
        const found = /http:\/\/\S+/.exec(said);
        if (found) done(found[0]);
      });
      this.child.on("exit", (code) => fail(new Error(`it ended with ${code}: ${said}`)));
    });
  }

  save(text: string): void {
    writeFileSync(this.file, text);
  }

  async end(): Promise<void> {
    const gone = new Promise((done) => this.child.on("exit", done));
    if (this.child.exitCode === null && this.child.kill("SIGINT")) await gone;
    rmSync(this.dir, { recursive: true, force: true });
  }
}

const test = base.extend<{ author: Author }>({
  // Playwright reads from the pattern which fixtures this one needs: none.
  author: async ({}, use) => {
    const author = new Author();
    try {
      await use(author);
    } finally {
      await author.end();
    }
  },
});

test("a tool is tried, a mistake is shown when it is saved, and what was typed stays", async ({ page, author }) => {
  const problems: string[] = [];
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("dialog", (dialog) => {
    problems.push(dialog.message());
    void dialog.dismiss();
  });
  await page.goto(await author.url);
  const tool = page.getByRole("combobox", { name: "Tool" });
  const call = page.getByRole("button", { name: "Call" });
  const result = page.locator("#result");
  await expect(page.getByText("Doubles <img src=x onerror=alert(1)>")).toBeVisible();
  await expect(page.getByLabel("Arguments, a JSON object")).toHaveValue(/"x": 2/);
  await page.getByLabel("Arguments, a JSON object").fill('{ "x": 21 }');
  await call.click();
  await expect(result).toContainText("Result, after");
  await expect(result).toContainText("42");
  await expect(result).toContainText("got 21");

  await page.getByLabel("Arguments, a JSON object").fill('{ "x": 1 }');
  await call.click();
  await expect(result).toContainText("x");
  await expect(result).not.toContainText("Result, after");
  await page.getByLabel("Arguments, a JSON object").fill("{ no");
  await call.click();
  await expect(result).toContainText("The arguments are no JSON");

  await tool.selectOption("fails");
  await call.click();
  await expect(result).toContainText("<b>broken</b>");

  // Half written arguments survive that the file is saved.
  await tool.selectOption("double");
  await page.getByLabel("Arguments, a JSON object").fill('{ "x": 5 }');
  author.save(BUNDLE.replace("z.number().min(2)", "z.number().min(Date.now())"));
  await expect(page.getByRole("article").first()).toBeVisible();
  await expect(page).toHaveTitle(/✗/);
  await expect(call).toBeDisabled();
  await expect(page.getByText("There is no tool that can be called.")).toBeVisible();
  author.save(BUNDLE.replace("x * 2", "x * 3"));
  await expect(page).toHaveTitle(/✓/);
  await expect(page.locator("#problems")).toHaveText("None.");
  await page.getByLabel("Arguments, a JSON object").fill('{ "x": 5 }');
  await call.click();
  await expect(result).toContainText("15");
  expect(problems).toEqual([]);
});

test("axe finds nothing on it, it fits small windows, and it says when the program has ended", async ({ page, author }) => {
  await page.goto(await author.url);
  await page.getByText("Schema of its arguments").click();
  const look = async () => {
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      for (const width of [390, 820, 1440]) {
        await page.setViewportSize({ width, height: 900 });
        const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        expect(over, `at ${width} px`).toBeLessThanOrEqual(0);
        if (process.env["SCREENSHOTS"]) await page.screenshot({ path: `${process.env["SCREENSHOTS"]}/bundle-dev-${width}-${colorScheme}.png`, fullPage: true });
      }
      const { violations } = await new AxeBuilder({ page }).analyze();
      expect(violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`)).toEqual([]);
    }
  };
  await page.getByRole("combobox", { name: "Tool" }).selectOption("fails");
  await page.getByRole("button", { name: "Call" }).click();
  await expect(page.locator("#result")).toContainText("broken");
  await look();
  author.save(`${BUNDLE}\nexport const more = tool({ description: "x", inputSchema: z.object({ a: z.string().min(globalThis.${"long".repeat(60)}) }), execute: async () => 1 });\n`);
  await expect(page.getByRole("article").first()).toBeVisible();
  await look();
  await author.end();
  await expect(page.getByRole("status")).toContainText("Not connected");
});
