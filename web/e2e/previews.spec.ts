// Programs of a sandbox in tabs of their own: what they can do there, and that they can do nothing with the interface.
import { readFileSync } from "node:fs";
import type { Page } from "@playwright/test";
import { answer, expect, test, type TestServer } from "./server";

/** The program of the server's own tests: it says what it is asked, streams, and speaks WebSocket. */
const APP = readFileSync(new URL("../../tests/serve/preview_app.py", import.meta.url), "utf8");

/** Shows what came over a WebSocket, and what has come of a stream that ends only when this page says so. */
const LIVELY = `<!doctype html><title>Lively</title><p id="socket"></p><p id="stream"></p><script>
  const socket = new WebSocket("ws://" + location.host + "/socket");
  socket.onopen = () => socket.send("over and back");
  socket.onmessage = ({ data }) => { document.getElementById("socket").textContent = data; };
  (async () => {
    const reader = (await fetch("/stream")).body.getReader();
    const shown = document.getElementById("stream");
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const text = new TextDecoder().decode(value);
      shown.textContent += text;
      if (text.includes("first")) await fetch("/go");
    }
    shown.textContent += "end";
  })();
</script>`;

/** Tries to act with the login of the user on the interface, whose address and session follow the hash. */
const HOSTILE = `<!doctype html><title>Hostile</title><pre id="found"></pre><iframe name="frame"></iframe><script>
  const [api, session] = decodeURIComponent(location.hash.slice(1)).split(" ");
  const found = { cookie: document.cookie, opener: String(window.opener) };
  const attempt = async (name, work) => {
    try { found[name] = await work(); } catch (error) { found[name] = "refused"; }
  };
  const task = JSON.stringify({ task: "planted" });
  (async () => {
    await attempt("read", async () => (await fetch(api + "/api/sessions", { credentials: "include" })).text());
    await attempt("blind", async () => (await fetch(api + "/api/sessions", { credentials: "include", mode: "no-cors" })).type);
    await attempt("write", async () => (await fetch(api + "/api/tasks",
      { method: "POST", credentials: "include", headers: { "content-type": "application/json" }, body: task })).text());
    await attempt("plain", async () => {
      return (await fetch(api + "/api/tasks", { method: "POST", credentials: "include", mode: "no-cors", body: task })).type;
    });
    await attempt("login", async () => (await fetch(api + "/api/sessions/" + session + "/previews/8123", { credentials: "include" })).text());
    await attempt("terminal", () => new Promise((done, fail) => {
      const socket = new WebSocket(api.replace("http", "ws") + "/api/sessions/" + session + "/terminal");
      socket.onopen = () => done("open");
      socket.onerror = fail;
    }));
    const form = document.createElement("form");
    Object.assign(form, { method: "post", enctype: "text/plain", action: api + "/api/tasks", target: "frame" });
    const field = document.createElement("input");
    Object.assign(field, { name: '{"task":"planted","x":"', value: '"}' });
    form.append(field);
    document.body.append(form);
    const framed = new Promise((done) => { document.querySelector("iframe").onload = done; });
    form.submit();
    await Promise.race([framed, new Promise((done) => setTimeout(done, 2000))]);
    document.getElementById("found").textContent = JSON.stringify(found);
  })();
</script>`;

/** A session whose agent has started the program, with these pages; and the tab that shows it. */
async function openPreview(page: Page, server: TestServer): Promise<Page> {
  const write = (path: string, content: string) => answer("", { name: "Write", arguments: { path, content } });
  const { app } = await server.start({
    app: [
      write("app.py", APP),
      write("lively.html", LIVELY),
      write("hostile.html", HOSTILE),
      answer("", { name: "Bash", arguments: { command: "exec python3 app.py 8123", background: true } }),
      answer("It is listening."),
    ],
  });
  await server.logIn(page);
  await server.begin(page, "start a server", app);
  await expect(page.getByText("It is listening.")).toBeVisible({ timeout: 30_000 });
  await page.getByRole("link", { name: "Ports" }).click();
  const link = page.getByRole("link", { name: "Open preview of port 8123 in a new tab" });
  const opened = page.context().waitForEvent("page");
  await link.click();
  const tab = await opened;
  await tab.waitForURL(/^http:\/\/8123-s-[a-z0-9]+\.localhost:\d+\/$/);
  return tab;
}

test("a program of the sandbox opens in a tab of its own, streams, and speaks WebSocket", async ({ page, server, problems }) => {
  const tab = await openPreview(page, server);
  const [path, headers] = JSON.parse((await tab.locator("body").textContent()) ?? "") as [string, [string, string][]];
  expect(path).toBe("/");
  const names = headers.map(([name]) => name.toLowerCase());
  expect(names).not.toContain("cookie");
  expect(headers).toContainEqual(["host", "localhost:8123"]);
  await tab.goto(new URL("/files/lively.html", tab.url()).href);
  await expect(tab.locator("#socket")).toHaveText("over and back");
  await expect(tab.locator("#stream")).toHaveText("first second end");
  expect(problems).toEqual([]);
});

test("a hostile page of a sandbox can do nothing with its user's login", async ({ page, server, problems }) => {
  const tab = await openPreview(page, server);
  const session = new URL(page.url()).pathname.split("/")[2] ?? "";
  const hash = encodeURIComponent(`${server.url} ${session}`);
  await tab.goto(new URL(`/files/hostile.html#${hash}`, tab.url()).href);
  await expect(tab.locator("#found")).not.toBeEmpty();
  const found = JSON.parse((await tab.locator("#found").textContent()) ?? "") as Record<string, string>;
  expect(found).toEqual({
    cookie: "",
    opener: "null",
    read: "refused",
    blind: "refused",
    write: "refused",
    // It is sent, as a form would be. The page is not shown the answer, and the server does not do it: see below.
    plain: "refused",
    login: "refused",
    terminal: "refused",
  });
  // Nothing was begun in the user's name, and the user is still logged in.
  await page.goto(server.url);
  await expect(page.getByRole("listitem")).toHaveCount(1);
  await expect(page.getByText("planted")).toHaveCount(0);
  // The same requests are answered for a page of the interface, so that they were refused for where they came from.
  const status = await page.evaluate(async () => (await fetch("/api/sessions")).status);
  expect(status).toBe(200);
  expect(problems).toEqual([]);
});
