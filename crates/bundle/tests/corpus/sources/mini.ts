// zod/mini: functions where zod has methods.
import { createAgent } from "lightfast/agent";
import { createLightfast } from "lightfast/client";
import { createTool } from "lightfast/tool";
import { gateway } from "@ai-sdk/gateway";
import * as z from "zod/mini";

const look = createTool({
  description: "Looks",
  inputSchema: z.object({
    text: z.string().check(z.minLength(2), z.maxLength(9)),
    n: z._default(z.number().check(z.gte(1)), 5),
    maybe: z.optional(z.nullable(z.boolean())),
    list: z.array(z.email()),
  }),
  execute: async ({ text }: { text: string }) => text,
});
export default createLightfast({
  agents: { looker: createAgent({ name: "looker", system: "s", model: gateway("m"), tools: { look } }) },
});
