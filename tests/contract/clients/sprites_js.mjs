// Drives a server with the contract of Sprites by @fly/sprites 0.1.0 (Node 24), the vendor's own
// client.
//
// Usage: node sprites_js.mjs BASE_URL TOKEN. Prints one line for each check and ends with code 1 at
// the first that fails.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { SpritesClient } from "@fly/sprites";

const [baseURL, token] = process.argv.slice(2);
const client = new SpritesClient(token, { baseURL });

function check(name, found, wanted) {
  assert.deepEqual(found, wanted, name);
  console.log(`ok ${name}`);
}

/** Waits for the exit of a command and collects its output. */
function finish(command, input) {
  const out = [];
  command.stdout.on("data", (chunk) => out.push(chunk));
  if (input !== undefined) {
    // Defect of the client: input that comes before its connection is an error.
    command.on("spawn", () => command.stdin.end(input));
  }
  return new Promise((resolve, reject) => {
    command.on("exit", (code) => resolve([code, Buffer.concat(out)]));
    command.on("error", reject);
  });
}

const sprite = await client.createSprite("js-check", { labels: ["a"] });
check("create", sprite.labels, ["a"]);
await assert.rejects(client.createSprite("js-check"));
await client.createSprite("js-other");
const names = (await client.listAllSprites("js-")).map((one) => one.name);
check("list", names, ["js-check", "js-other"]);

// Commands.
const both = await sprite.execFile("sh", ["-c", "echo out; echo err >&2"]);
check("streams", [both.stdout, both.stderr, both.exitCode], ["out\n", "err\n", 0]);
await assert.rejects(sprite.execFile("sh", ["-c", "exit 42"]), (error) => error.exitCode === 42);
check("exit code", true, true);
const data = randomBytes(1 << 20);
const [code, echoed] = await finish(sprite.spawn("cat"), data);
check("a megabyte through stdin", [code, data.equals(echoed)], [0, true]);
const [ttyCode, size] = await finish(
  sprite.spawn("sh", ["-c", "tty >/dev/null && stty size"], { tty: true, rows: 30, cols: 100 }),
);
check("terminal", [ttyCode, size.toString()], [0, "30 100\r\n"]);
const home = (await sprite.exec("pwd")).stdout.trim();
check("home", home.includes("/home"), true);

// Sessions: one with a terminal stays when its client goes.
const session = sprite.createSession("sh", ["-c", "echo begun; sleep 60"]);
// The end of this session is the kill below.
session.on("error", () => {});
await new Promise((resolve) => session.stdout.once("data", resolve));
const [listed] = await sprite.listSessions();
check("session", [listed.tty, listed.command], [true, "sh -c echo begun; sleep 60"]);
const told = [];
for await (const event of await sprite.killSession(listed.id)) told.push(event.type);
check("kill", told, ["signal", "exited", "complete"]);

// Files.
const fs = sprite.filesystem(home);
await fs.writeFile("file.bin", data);
check("file", data.equals(await fs.readFile("file.bin")), true);
check("directory", await fs.readdir("."), ["file.bin"]);
check("missing", await fs.exists("none"), false);
await fs.chmod("file.bin", 0o755);
await fs.rename("file.bin", "other");
check("size", (await fs.stat("other")).size, data.length);

// Checkpoints.
let last;
for await (const event of await sprite.createCheckpoint("first")) last = event;
check("checkpoint", [last.type, last.data], ["complete", "Checkpoint v0 created"]);
await fs.rm("other");
for await (const event of await sprite.restoreCheckpoint("v0")) last = event;
check("restore", [last.type, await fs.readdir(".")], ["complete", ["other"]]);
check("checkpoints", (await sprite.listCheckpoints()).map((one) => one.id), ["v0", "Current"]);

// Policy.
await sprite.updateNetworkPolicy({ rules: [{ domain: "*", action: "deny" }] });
check("policy", (await sprite.getNetworkPolicy()).rules, [{ domain: "*", action: "deny" }]);

await sprite.destroy();
await assert.rejects(client.getSprite("js-check"));
check("destroy", true, true);
process.exit(0);
