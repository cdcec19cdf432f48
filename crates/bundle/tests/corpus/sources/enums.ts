// Enums of TypeScript, in keys, prompts and schemas.
import { createAgent } from "lightfast/agent";
import { createLightfast } from "lightfast/client";
import { createTool } from "lightfast/tool";
import { gateway } from "@ai-sdk/gateway";
import { z } from "zod";

enum Digest { Sha256 = "sha256", Sha512 = "sha512" }
enum Level { Low, High = 10, Higher }
const enum Name { Hash = "hash", Rate = "rate" }

const tools = {
  [Name.Hash]: createTool({
    description: `Hashes with ${Digest.Sha256} or ${Digest.Sha512}`,
    inputSchema: z.object({ digest: z.enum(Digest).default(Digest.Sha256), text: z.string().max(4096) }),
    execute: async ({ digest, text }: { digest: Digest; text: string }) => `${digest}:${text.length}`,
  }),
  [Name.Rate]: createTool({
    description: "Rates",
    inputSchema: z.object({ level: z.enum(Level), only: z.literal(Level.Higher) }),
    execute: async ({ level }: { level: Level }) => Level[level],
  }),
};

export default createLightfast({
  agents: { hasher: createAgent({ name: "hasher", system: "You know " + Object.values(Digest).join(" and "), model: gateway("m"), tools }) },
});
