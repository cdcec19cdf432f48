// Functions that make agents and tools.
import { createAgent } from "lightfast/agent";
import { createLightfast } from "lightfast/client";
import { createTool } from "lightfast/tool";
import { gateway } from "@ai-sdk/gateway";
import { z } from "zod";

function makeTool(name: string, factor: number) {
  return createTool({
    description: `Multiplies by ${factor} (${name})`,
    inputSchema: z.object({ x: z.number().max(factor * 100) }),
    execute: async ({ x }: { x: number }) => x * factor,
  });
}
const makeAgent = (name: string, tools: any, more = {}) =>
  createAgent({ name, system: `You are ${name}`, model: gateway("m"), tools, ...more });

export default createLightfast({
  agents: {
    twice: makeAgent("twice", { double: makeTool("double", 2) }),
    thrice: makeAgent("thrice", { triple: makeTool("triple", 3), double: makeTool("other", 2) }, { temperature: 0 }),
  },
});
