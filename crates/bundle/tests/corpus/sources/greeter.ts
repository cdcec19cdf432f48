// The smallest: one agent, one tool.
import { createAgent } from "lightfast/agent";
import { createLightfast } from "lightfast/client";
import { createTool } from "lightfast/tool";
import { gateway } from "@ai-sdk/gateway";
import { z } from "zod";

const greet = createTool({
  description: "Says hello to somebody",
  inputSchema: z.object({ name: z.string().min(1) }),
  outputSchema: z.object({ hello: z.string() }),
  execute: async ({ name }) => ({ hello: name }),
});

export default createLightfast({
  agents: {
    assistant: createAgent({ name: "assistant", system: "You are helpful", model: gateway("openai/gpt-4o"), tools: { greet } }),
  },
});
