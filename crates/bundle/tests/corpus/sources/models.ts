// Models in every form, and options beside them.
import { createAgent } from "lightfast/agent";
import { createLightfast } from "lightfast/client";
import { createGateway, gateway } from "@ai-sdk/gateway";
import { openai } from "@ai-sdk/openai";
import { stepCountIs, wrapLanguageModel } from "ai";

const mine = createGateway({});
const wrapped = wrapLanguageModel({ model: gateway("inner"), middleware: [] });

export default createLightfast({
  agents: {
    gateway: createAgent({ name: "g", system: "s", model: gateway("openai/gpt-4o") }),
    openai: createAgent({ name: "o", system: "s", model: openai("gpt-4o-mini"), stopWhen: stepCountIs(5), onFinish: () => {} }),
    chat: createAgent({ name: "c", system: "s", model: openai.chat("gpt-4o") }),
    text: createAgent({ name: "t", system: "s", model: "anthropic/claude-sonnet-4-5" }),
    wrapped: createAgent({ name: "w", system: "s", model: wrapped }),
    own: createAgent({ name: "x", system: "s", model: mine("y") }),
  },
});
