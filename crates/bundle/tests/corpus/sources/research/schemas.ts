import { z } from "zod";

export const Page = z.object({ url: z.url(), title: z.string().optional() });
export const Query = z.object({
  text: z.string().min(2).max(200).describe("What to look for"),
  limit: z.number().int().min(1).max(50).default(10),
  sites: z.array(z.string()).max(5).optional(),
  when: z.union([z.literal("day"), z.literal("week"), z.object({ from: z.iso.date(), to: z.iso.date().nullable() })]).optional(),
});
export type Node = { name: string; children: Node[] };
export const Tree: z.ZodType<Node> = z.lazy(() => z.object({ name: z.string(), children: z.array(Tree) }));
