import { createHash } from "node:crypto";
import { createTool } from "lightfast/tool";
import { z } from "zod";
import { Page, Query, Tree } from "./schemas";

const slug = (text: string) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-");

export const search = createTool({
  description: "Searches",
  inputSchema: Query,
  outputSchema: z.object({ pages: z.array(Page) }),
  execute: async ({ text }) => ({ pages: [{ url: `https://example.com/${slug(text)}`, title: createHash("sha256").update(text).digest("hex") }] }),
});
export const summarise = createTool({
  description: "Summarises",
  inputSchema: Page.extend({ words: z.number().positive(), tree: Tree }).partial({ words: true }),
  execute: async ({ url }) => url,
});
export const save = createTool({
  description: "Saves",
  inputSchema: Query.pick({ text: true }).merge(Page.omit({ title: true })).strict(),
  execute: async () => null,
});
