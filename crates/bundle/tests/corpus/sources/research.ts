// Several files, several agents that share tools.
import { createAgent } from "lightfast/agent";
import { createLightfast } from "lightfast/client";
import { gateway } from "@ai-sdk/gateway";
import * as tools from "./research/tools";
import { save, search } from "./research/tools";

const reader = createAgent({ name: "reader", system: "You read", model: gateway("a"), tools: { search } });
const names = ["one", "two"] as const;

export default createLightfast({
  agents: {
    reader,
    writer: createAgent({ name: "writer", system: "You write", model: gateway("b"), tools: { ...tools, keep: save }, maxSteps: 4 }),
    lazy: createAgent({ name: "lazy", system: "You wait", model: gateway("c"), tools: () => ({ search, save }) }),
    ...Object.fromEntries(names.map((name) => [name, createAgent({ name, system: `You are ${name}`, model: gateway(name) })])),
  },
});
