// Tools of the AI SDK, exported without an agent.
import { dynamicTool, jsonSchema, tool } from "ai";
import { z } from "zod";

export const weather = tool({
  description: "Weather at a place",
  inputSchema: z.object({ place: z.string(), unit: z.enum(["c", "f"]).default("c") }),
  outputSchema: z.object({ degrees: z.number() }),
  execute: async () => ({ degrees: 20 }),
});
export const raw = tool({
  description: "Raw schema",
  inputSchema: jsonSchema({ type: "object", properties: { n: { type: "integer", minimum: 0 } }, required: ["n"], additionalProperties: false }),
  execute: async ({ n }: any) => n + 1,
});
export const asks = tool({ description: "Has no code", inputSchema: z.object({ question: z.string() }) });
export const dynamic = dynamicTool({ description: "Dynamic", inputSchema: z.object({}), execute: async () => 1 });
