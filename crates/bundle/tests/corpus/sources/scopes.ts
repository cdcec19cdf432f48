// The same names in several scopes: a tool found by its name alone would be the wrong one.
import { createAgent } from "lightfast/agent";
import { createLightfast } from "lightfast/client";
import { createTool } from "lightfast/tool";
import { gateway } from "@ai-sdk/gateway";
import { z } from "zod";
import { make } from "./scopes/other";

const run = createTool({ description: "Outer", inputSchema: z.object({ a: z.string() }), execute: async () => "outer" });
const inner = (() => {
  const run = createTool({ description: "Inner", inputSchema: z.object({ b: z.number() }), execute: async () => "inner" });
  return { run };
})();

export default createLightfast({
  agents: {
    outer: createAgent({ name: "outer", system: "s", model: gateway("m"), tools: { run } }),
    inner: createAgent({ name: "inner", system: "s", model: gateway("m"), tools: inner }),
    other: createAgent({ name: "other", system: "s", model: gateway("m"), tools: { run: make } }),
  },
});
