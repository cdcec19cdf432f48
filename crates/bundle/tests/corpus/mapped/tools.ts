import { createTool } from "lightfast/tool";
import { z } from "zod";
import fs from "node:fs";

enum Mode { Fast = "fast", Slow = "slow" }

export const tools = {
  read: createTool({
    description: "Reads",
    inputSchema: z.object({ mode: z.enum(Mode), path: z.string() }),
    execute: async ({ path }: { path: string }) => fs.readFileSync(path, "utf8"),
  }),
};
