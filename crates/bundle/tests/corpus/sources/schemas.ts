// Schemas of many kinds.
import { createAgent } from "lightfast/agent";
import { createLightfast } from "lightfast/client";
import { createTool } from "lightfast/tool";
import { gateway } from "@ai-sdk/gateway";
import { z } from "zod";

const Id = z.uuid().describe("An id");
const Shape = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("circle"), radius: z.number().positive() }),
  z.object({ kind: z.literal("box"), sides: z.tuple([z.number(), z.number()]) }),
]);
const { object, string } = z;
const make = (inputSchema: z.ZodType) => createTool({ description: "d", inputSchema, execute: async (input: unknown) => input });

export default createLightfast({
  agents: {
    shapes: createAgent({
      name: "shapes", system: "s", model: gateway("m"),
      tools: {
        ids: make(z.object({ id: Id, other: Id.optional(), all: z.array(Id).nonempty() })),
        shape: make(z.object({ shape: Shape, both: z.intersection(z.object({ a: z.string() }), z.object({ b: z.number() })) })),
        text: make(z.object({ mail: z.email(), old: z.string().email(), at: z.iso.datetime(), start: z.string().startsWith("a.").endsWith("z") })),
        bounds: make(z.strictObject({ n: z.number().gt(0).lt(10).multipleOf(0.5), i: z.int(), l: z.array(z.string()).length(3), b: z.boolean().nullish() })),
        loose: make(z.looseObject({ any: z.any(), none: z.null(), un: z.unknown().optional() })),
        parts: make(object({ a: string(), b: string() }).partial().required({ a: true }).extend({ c: z.coerce.number() })),
        catchall: make(z.object({ a: z.string() }).catchall(z.number())),
        meta: make(z.object({ a: z.string().meta({ title: "A", examples: ["x"] }) }).meta({ title: "T" })),
      },
    }),
  },
});
