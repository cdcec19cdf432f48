// A chat through the AI SDK's own transport and message reader: node chat.mjs SDK_DIR SERVER TOKEN BUNDLE
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [dir, server, token, bundle] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${dir}/`));
const { AbstractChat, DefaultChatTransport, readUIMessageStream } = require("ai");

const transport = new DefaultChatTransport({
  api: `${server}/api/chat`,
  headers: { authorization: `Bearer ${token}` },
  body: { bundle, agentName: "assistant" },
});

// What `useChat` is made of, without React.
class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => this.messages.push(message);
  popMessage = () => this.messages.pop();
  replaceMessage = (index, message) => (this.messages[index] = structuredClone(message));
  snapshot = (value) => structuredClone(value);
}
class Chat extends AbstractChat {}

const state = new State();
const chat = new Chat({ id: "chat-1", transport, state, onError: (error) => { throw error; } });

const text = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("");
const tool = (message) => {
  const part = message.parts.find((part) => part.type === "dynamic-tool");
  return part && { state: part.state, input: part.input, output: part.output };
};
const last = () => state.messages.at(-1);

await chat.sendMessage({ text: "greet ann" });
const first = { text: text(last()), tool: tool(last()), session: last().metadata?.sessionId };
await chat.sendMessage({ text: "and now?" });
const second = { text: text(last()) };
await chat.regenerate();
const regenerated = { role: last().role, text: text(last()), messages: state.messages.length };

// The reader by itself, on a chat of its own.
const stream = await transport.sendMessages({
  chatId: "chat-2",
  trigger: "submit-message",
  messages: [{ id: "m", role: "user", parts: [{ type: "text", text: "greet ann" }] }],
});
let read;
for await (const message of readUIMessageStream({ stream })) read = message;
const resumed = await transport.reconnectToStream({ chatId: "chat-2" });

console.log(JSON.stringify({ first, second, regenerated, read: text(read), resumed, status: chat.status }));
