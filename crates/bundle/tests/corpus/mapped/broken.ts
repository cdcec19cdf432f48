// What is refused stands in two files; each place is marked by a text of its own.
import { createAgent } from "lightfast/agent";
import { createLightfast } from "lightfast/client";
import { gateway } from "@ai-sdk/gateway";
import { tools } from "./tools";

interface Options { production: boolean }
const options: Options = { production: true };

/* 𝔸 character outside of the first plane, so that columns differ by how they are counted */ export const agent = createAgent({
  name: "broken", system: `Started at ${Date.now()}`,
  model: process.env.PRODUCTION ? gateway("large") : gateway("small"),
  tools,
});

export default createLightfast({ agents: { broken: agent }, metadata: { name: `${options.production}` } });
