// A server of a test's own: the real program with a state directory that goes, behind a connection that can be cut.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test as base, type Page } from "@playwright/test";

const TOKEN = "0123456789abcdef0123456789abcdef";
const START_MS = 30_000;
/** How long a cancelled session may take to end, on a busy machine. */
const REMOVE_MS = 30_000;

/** One answer of a recorded model. */
export function answer(text: string, ...calls: { name: string; arguments: unknown }[]): string {
  const parts: unknown[] = text ? [{ kind: "text", text }] : [];
  calls.forEach((call, index) => parts.push({ kind: "call", id: `c${index}`, ...call }));
  return JSON.stringify({ type: "answered", turn: 1, parts });
}

export class TestServer {
  private readonly dir = mkdtempSync(join(tmpdir(), "glovebox-web-"));
  private readonly sockets = new Set<Socket>();
  private child: ChildProcess | null = null;
  private proxy: Server | null = null;
  private backend = 0;
  private basePath = "";
  private isCut = false;
  private models: string[] = [];
  /** The administrator's. */
  readonly token = TOKEN;
  url = "";

  /** Starts with models that play these recordings; `demo` is there besides. The names of the models. */
  async start(recordings: Record<string, string[]> = {}, config = "", basePath = ""): Promise<Record<string, string>> {
    const names: Record<string, string> = {};
    for (const [name, answers] of Object.entries(recordings)) {
      const file = join(this.dir, `${name}.jsonl`);
      writeFileSync(file, `${answers.join("\n")}\n`);
      names[name] = `replay:${file}`;
    }
    writeFileSync(join(this.dir, "glovebox.toml"), config);
    this.models = ["demo", ...Object.values(names)];
    this.proxy = createServer((socket) => this.pass(socket));
    const proxy = this.proxy;
    await new Promise<void>((done) => proxy.listen(0, "127.0.0.1", done));
    const address = proxy.address();
    if (typeof address !== "object" || !address) throw new Error("the proxy has no address");
    this.basePath = basePath;
    this.url = `http://localhost:${address.port}${basePath}`;
    await this.run();
    return names;
  }

  private pass(socket: Socket): void {
    if (this.isCut) {
      socket.destroy();
      return;
    }
    const to = connect(this.backend, "127.0.0.1");
    for (const one of [socket, to]) {
      this.sockets.add(one);
      one.on("close", () => this.sockets.delete(one));
      one.on("error", () => one.destroy());
    }
    socket.pipe(to).pipe(socket);
    socket.on("close", () => to.destroy());
    to.on("close", () => socket.destroy());
  }

  /** Starts the program, again with the same state where it has run before. */
  async run(): Promise<void> {
    const program = process.env["GLOVEBOX_BIN"];
    if (!program) throw new Error("GLOVEBOX_BIN does not name the program; use `cargo xtask web --test BINARY`");
    const host = new URL(this.url).host;
    const models = this.models.flatMap((model) => ["--model", model]);
    const args = ["--config", join(this.dir, "glovebox.toml"), "serve", "--listen", "127.0.0.1:0", "--allow-host", host, "--preview-domain", host, "--base-path", this.basePath || "/", ...models];
    const child = spawn(program, args, {
      cwd: this.dir,
      env: { PATH: process.env["PATH"], HOME: this.dir, GLOVEBOX_STATE: join(this.dir, "state"), GLOVEBOX_SERVER_TOKEN: TOKEN },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.child = child;
    this.backend = await new Promise<number>((done, fail) => {
      let said = "";
      const timer = setTimeout(() => fail(new Error(`the server did not start: ${said}`)), START_MS);
      const hear = (data: Buffer) => {
        said += data.toString();
        const found = /serving at http:\/\/127\.0\.0\.1:(\d+)/.exec(said);
        if (!found) return;
        clearTimeout(timer);
        done(Number(found[1]));
      };
      child.stdout.on("data", hear);
      child.stderr.on("data", hear);
      child.on("exit", (code) => fail(new Error(`the server ended with ${code}: ${said}`)));
    });
  }

  /** Ends the program at once, as a crash would. */
  async kill(): Promise<void> {
    const child = this.child;
    this.child = null;
    if (!child || child.exitCode !== null) return;
    const gone = new Promise((done) => child.on("exit", done));
    child.kill("SIGKILL");
    await gone;
  }

  /** Cuts every connection and takes no new ones until `mend`. */
  cut(): void {
    this.isCut = true;
    for (const socket of this.sockets) socket.destroy();
  }

  mend(): void {
    this.isCut = false;
  }

  async logIn(page: Page): Promise<void> {
    await page.goto(this.url);
    await this.fillToken(page);
  }

  async fillToken(page: Page): Promise<void> {
    await page.getByLabel("Token").fill(TOKEN);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByLabel("Token").waitFor({ state: "hidden" });
  }

  /** Begins a session in the page. */
  async begin(page: Page, task: string, model?: string): Promise<void> {
    await page.goto(this.url);
    await page.getByLabel("What is to be done?").fill(task);
    if (model) {
      await page.getByText("Options").click();
      await page.getByLabel("Model").fill(model);
    }
    await page.getByRole("button", { name: "Start session" }).click();
    await page.getByRole("log", { name: "Conversation" }).waitFor();
  }

  private async ask(method: string, path: string, body?: unknown): Promise<Response> {
    const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
    const content = body === undefined ? {} : { body: JSON.stringify(body) };
    return fetch(`http://127.0.0.1:${this.backend}${this.basePath}${path}`, { method, headers, ...content });
  }

  /** Calls a tool in the sandbox of the session that the page shows. */
  async call(page: Page, tool: string, args: unknown): Promise<void> {
    const id = new URL(page.url()).pathname.split("/")[2];
    const { sandbox } = (await (await this.ask("GET", `/api/sessions/${id}`)).json()) as { sandbox: string };
    const called = await this.ask("POST", `/api/sandboxes/${sandbox}/call`, { tool, arguments: args });
    if (!called.ok) throw new Error(`the call was answered ${called.status}: ${await called.text()}`);
  }

  /** Removes the sessions one by one: their sandboxes would outlive the server. */
  private async removeSessions(): Promise<void> {
    const { sessions } = (await (await this.ask("GET", "/api/sessions")).json()) as { sessions: { id: string }[] };
    for (const { id } of sessions) {
      await this.ask("POST", `/api/sessions/${id}/cancel`);
      await this.remove(id);
    }
  }

  /** Removes a cancelled session, which is refused until its turn has ended. */
  private async remove(id: string): Promise<void> {
    const end = Date.now() + REMOVE_MS;
    for (;;) {
      const answer = await this.ask("DELETE", `/api/sessions/${id}`);
      if (answer.ok || answer.status === 404) return;
      if (Date.now() > end) throw new Error(`the session stays: ${answer.status}: ${await answer.text()}`);
      await new Promise((done) => setTimeout(done, 100));
    }
  }

  async stop(): Promise<void> {
    this.mend();
    try {
      if (this.child?.exitCode === null && this.backend) await this.removeSessions();
    } finally {
      await this.kill();
    }
    this.proxy?.close();
    // What the killed server was starting ends after it, and may still write.
    rmSync(this.dir, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

export const test = base.extend<{ server: TestServer; problems: string[] }>({
  // Playwright reads from the pattern which fixtures this one needs: none.
  server: async ({}, use) => {
    const server = new TestServer();
    try {
      await use(server);
    } finally {
      await server.stop();
    }
  },
  /** What the browser complained about, such as a breach of the content security policy, and requests elsewhere. */
  problems: async ({ page, server }, use) => {
    const problems: string[] = [];
    page.on("pageerror", (error) => problems.push(error.message));
    page.on("dialog", (dialog) => {
      problems.push(`a dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on("console", (message) => {
      if (/content security policy/i.test(message.text())) problems.push(message.text());
    });
    page.on("request", (request) => {
      if (server.url && !request.url().startsWith(server.url)) problems.push(`a request to ${request.url()}`);
    });
    await use(problems);
  },
});

export { expect } from "@playwright/test";
