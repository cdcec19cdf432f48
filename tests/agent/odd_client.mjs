// Makes a call in each form to `odd_server.py` with the official TypeScript SDK, one line of JSON for each.
//
//     odd_client.mjs DIRECTORY PYTHON SERVER.py STARTS FORM...
//
// DIRECTORY holds its packages.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [directory, command, server, starts, ...forms] = process.argv.slice(2);
const require = createRequire(`${directory}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");

async function call(form) {
  const client = new Client({ name: "odd", version: "1" });
  await client.connect(new StdioClientTransport({ command, args: [server, starts, "plainly"] }));
  try {
    const request = { name: "write", arguments: { form } };
    const result = await client.callTool(request, undefined, { timeout: 4000 });
    const texts = result.content.map((part) => part.text ?? `[${part.type}]`);
    // Half a character cannot be printed.
    return texts.join("\n").toWellFormed();
  } finally {
    await client.close();
  }
}

const failure = (error) => (error.message.includes("timed out") ? "time-out" : error.name);
const outcomes = await Promise.all(forms.map((form) => call(form).catch(failure)));
for (const [at, form] of forms.entries()) console.log(JSON.stringify({ form, outcome: outcomes[at] }));
