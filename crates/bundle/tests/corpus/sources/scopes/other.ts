import { createTool } from "lightfast/tool";
import { z } from "zod";

const run = "Other";
export const make = createTool({ description: run, inputSchema: z.object({ c: z.boolean() }), execute: async () => run });
