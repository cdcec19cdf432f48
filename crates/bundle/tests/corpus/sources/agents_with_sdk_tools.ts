// Tools of the AI SDK in agents of lightfast.
import { createAgent } from "lightfast/agent";
import { createLightfast } from "lightfast/client";
import { gateway } from "@ai-sdk/gateway";
import { tool } from "ai";
import * as zod from "zod";

class Counter {
  static #count = 0;
  static next() { return ++Counter.#count; }
}
const table = { a: 1, b: 2 } as Record<string, number>;
const pattern = /^[a-z]+$/;

const count = tool({
  description: "Counts",
  inputSchema: zod.object({ key: zod.string().regex(pattern), tags: zod.record(zod.string(), zod.boolean()) }),
  execute: async ({ key }) => (table[key] ?? 0) + Counter.next(),
});
export const lightfast = createLightfast({
  agents: { counter: createAgent({ name: "counter", system: "You count", model: gateway("m"), tools: { "count-it": count } }) },
});
