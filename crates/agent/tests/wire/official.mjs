// Reads recorded streams with the AI SDK, one line of JSON for each.
//
//     official.mjs DIRECTORY URL NAME...
//
// DIRECTORY holds its packages. The first word of a name is the format. Each stream is answered to one request
// to URL, in this order.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [directory, baseURL, ...names] = process.argv.slice(2);
const require = createRequire(`${directory}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { jsonSchema, streamText, tool } = await load("ai");
// A model that has no known limit of output is warned of.
globalThis.AI_SDK_LOG_WARNINGS = false;
const options = { baseURL, apiKey: "planted", name: "planted" };
const chat = (await load("@ai-sdk/openai-compatible")).createOpenAICompatible(options);
const openai = (await load("@ai-sdk/openai")).createOpenAI(options);
const anthropic = (await load("@ai-sdk/anthropic")).createAnthropic(options);
const google = (await load("@ai-sdk/google")).createGoogleGenerativeAI(options);
const models = {
  chat: () => chat("m"),
  responses: () => openai.responses("m"),
  anthropic: () => anthropic("m"),
  gemini: () => google("m"),
};
const any = tool({ inputSchema: jsonSchema({ type: "object" }) });

async function read(name) {
  const { fullStream } = streamText({
    model: models[name.split("-")[0]](),
    prompt: "go",
    tools: { Read: any, Write: any, Jobs: any },
    maxRetries: 0,
    onError: () => {},
  });
  const answer = { text: "", thoughts: "", calls: [], stop: null, usage: null };
  for await (const part of fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") answer.text += part.text;
    if (part.type === "reasoning-delta") answer.thoughts += part.text;
    if (part.type === "tool-call" && !part.providerExecuted)
      answer.calls.push({ name: part.toolName, arguments: part.input });
    if (part.type === "finish") {
      answer.stop = part.finishReason;
      const { inputTokens, outputTokens } = part.totalUsage;
      answer.usage = inputTokens === undefined ? null : [inputTokens, outputTokens];
    }
  }
  // Half a character cannot be printed.
  return { ...answer, text: answer.text.toWellFormed() };
}

for (const name of names) {
  const answer = await read(name).catch((error) => ({
    error: error?.name ?? String(error),
    detail: String(error?.message ?? "").slice(0, 200),
  }));
  console.log(JSON.stringify({ name, ...answer }));
}
