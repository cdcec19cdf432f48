// Makes schemas of zod at random, always the same ones, and writes down what zod itself says they are in JSON Schema:
//   node schemas.mjs DIRECTORY_OF_PACKAGES OUT
// OUT/schemas.json has for each version of zod the expressions, with their JSON Schema for what goes in and comes out.
import { createRequire } from "node:module";
import fs from "node:fs";
import path from "node:path";

const [packages, out] = process.argv.slice(2).map((name) => path.resolve(name));
const require = createRequire(path.join(packages, "index.js"));
const COUNT = 300;

// mulberry32
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function generator(seed, version) {
  const next = random(seed);
  const below = (bound) => Math.floor(next() * bound);
  const pick = (list) => list[below(list.length)];
  const times = (most, make) => Array.from({ length: below(most + 1) }, make).join("");
  const is4 = version === 4;

  const string = () => {
    const low = below(4);
    const checks = [`.min(${low})`, `.max(${low + 1 + below(9)})`, ".regex(/^[a-z]+$/)", '.startsWith("a.b")', '.endsWith("$")', ".trim()", ".nonempty()", '.includes("x")', ".toLowerCase()"];
    return "z.string()" + [...new Set(Array.from({ length: below(4) }, () => pick(checks)))].join("");
  };
  const format = () =>
    is4
      ? pick(["z.email()", "z.uuid()", "z.url()", "z.ipv4()", "z.ipv6()", "z.iso.datetime()", "z.iso.date()", "z.iso.time()", "z.base64()", "z.cuid2()", "z.nanoid()", "z.jwt()", "z.e164()", "z.ulid()", "z.string().email()", "z.string().url().max(99)"])
      : pick(["z.string().email()", "z.string().uuid()", "z.string().url().max(99)", "z.string().datetime()"]);
  const number = () => {
    const low = below(9) - 4;
    const checks = [".int()", `.min(${low})`, `.max(${low + 5})`, `.gt(${low})`, `.lt(${low + 7})`, ".positive()", ".nonnegative()", `.multipleOf(${pick([2, 0.5, 3])})`, ".finite()"];
    const base = is4 ? pick(["z.number()", "z.number()", "z.int()", "z.coerce.number()"]) : pick(["z.number()", "z.number()", "z.coerce.number()"]);
    // zod 3 writes the last of several bounds at one end, zod 4 the narrowest.
    return base + (is4 ? times(3, () => pick(checks)) : pick(checks));
  };
  const literal = () => pick(['z.literal("a")', "z.literal(7)", "z.literal(true)", "z.literal(false)", ...(is4 ? ["z.literal(null)", 'z.literal(["x", "y"])', "z.literal([1, 2])"] : [])]);
  const choice = () => pick(['z.enum(["a", "b", "c"])', 'z.enum(["one"])', ...(is4 ? ['z.enum({ A: "a", B: "b" })', 'z.enum(["a", "b", "c"]).exclude(["b"])', 'z.enum(["a", "b", "c"]).extract(["b"])'] : ['z.nativeEnum({ A: "a", B: "b" })'])]);
  // Fields that take anything may be left out in zod 3 and not in zod 4; a bundle says not which one it has.
  const anything = () => (is4 ? pick(["z.any()", "z.unknown()"]) : "z.boolean()");
  const simple = () => pick([string, string, format, number, number, literal, choice, () => "z.boolean()", () => "z.null()", anything])();

  const fields = (depth, from = 0) => {
    const names = ["a", "b", "c", '"d-e"', "f"].slice(from, from + 1 + below(3));
    return `{ ${names.map((name) => `${name}: ${field(depth - 1)}`).join(", ")} }`;
  };
  const object = (depth) => {
    const made = `z.object(${fields(depth)})`;
    // What an object does with fields that it does not name, alone and one after the other.
    const keys = () => pick([".strict()", ".passthrough()", ".strip()", `.catchall(${simple()})`, ".catchall(z.never())", ...(is4 ? [".loose()", ".catchall(z.unknown())"] : [])]);
    const parts = () => pick([".partial()", ".pick({ a: true })", ".omit({ a: true })", ".partial({ a: true })", `.extend(${fields(depth, 2)})`, `.merge(z.object(${fields(depth, 3)})${times(1, keys)})`]);
    const more = ["", "", keys(), keys(), keys() + keys(), parts(), parts() + keys(), keys() + parts(), keys() + parts() + parts()];
    // `required` leaves a default alone in zod 3.
    if (is4) more.push(".partial().required()");
    const made4 = is4 ? pick([made, made, made, `z.strictObject(${fields(depth)})`, `z.looseObject(${fields(depth)})`]) : made;
    return made4 + pick(more);
  };
  const array = (depth) => `z.array(${any(depth - 1)})${pick(["", "", ".min(1)", ".max(4)", ".nonempty()", ".length(2)"])}`;
  const tuple = (depth) => `z.tuple([${Array.from({ length: 1 + below(3) }, () => any(depth - 1)).join(", ")}])`;
  const rest = (depth) => `z.tuple([${any(depth - 1)}]).rest(${any(depth - 1)})`;
  const record = (depth) => pick([`z.record(z.string(), ${any(depth - 1)})`, ...(is4 ? [`z.record(z.enum(["k", "l"]), ${any(depth - 1)})`, `z.partialRecord(z.enum(["k", "l"]), ${any(depth - 1)})`] : [])]);
  const union = (depth) => `z.union([${any(depth - 1)}, ${any(depth - 1)}])`;
  const discriminated = (depth) => `z.discriminatedUnion("kind", [z.object({ kind: z.literal("p"), x: ${any(depth - 1)} }), z.object({ kind: z.literal("q"), y: ${any(depth - 1)} })])`;
  const intersection = (depth) => `z.object({ l: ${any(depth - 1)} }).and(z.object({ r: ${any(depth - 1)} }))`;

  function any(depth) {
    if (depth <= 0) return simple();
    const make = pick([simple, simple, object, object, array, array, tuple, rest, record, union, discriminated, ...(is4 ? [intersection] : [])]);
    const made = make(depth);
    return made + pick(["", "", "", "", '.describe("what it is")', ".nullable()", ...(is4 ? ['.meta({ title: "T" })', ".readonly()"] : [])]);
  }
  const withDefault = () => pick(['z.string().default("d")', "z.number().min(0).default(0)", "z.boolean().default(false)", 'z.array(z.string()).default(["x"])', 'z.enum(["a", "b"]).default("b")']);
  function field(depth) {
    return pick([() => any(depth), () => any(depth), () => `${any(depth)}.optional()`, () => `${any(depth)}.nullish()`, withDefault, () => `${any(depth)}.optional().describe("maybe")`])();
  }
  return () => `z.object(${fields(3)})`;
}

// The same in zod/mini, which has functions where zod has methods.
function miniGenerator(seed) {
  const next = random(seed);
  const below = (bound) => Math.floor(next() * bound);
  const pick = (list) => list[below(list.length)];
  const checked = (base, checks) => {
    const some = [...new Set(Array.from({ length: below(3) }, () => pick(checks)))];
    return some.length > 0 ? `${base}.check(${some.map((check) => `z.${check}`).join(", ")})` : base;
  };
  const string = () => checked("z.string()", [`minLength(${below(4)})`, `maxLength(${4 + below(9)})`, "regex(/^[a-z]+$/)", 'startsWith("a.b")', 'endsWith("$")', 'includes("x")', "trim()", "toLowerCase()"]);
  const format = () => pick(["z.email()", "z.uuid()", "z.url()", "z.ipv4()", "z.iso.datetime()", "z.iso.date()", "z.base64()", "z.nanoid()"]);
  const number = () => checked(pick(["z.number()", "z.int()", "z.coerce.number()"]), [`gte(${below(9) - 4})`, `lte(${5 + below(5)})`, `gt(${below(5)})`, `lt(${9 + below(5)})`, "positive()", "nonnegative()", `multipleOf(${pick([2, 3])})`]);
  const simple = () => pick([string, string, format, number, number, () => pick(['z.literal("a")', "z.literal(7)", 'z.literal(["x", "y"])']), () => pick(['z.enum(["a", "b", "c"])', 'z.enum({ A: "a", B: "b" })']), () => "z.boolean()", () => "z.null()", () => "z.unknown()"])();
  const fields = (depth, from = 0) => `{ ${["a", "b", "c", '"d-e"', "f"].slice(from, from + 1 + below(3)).map((name) => `${name}: ${field(depth - 1)}`).join(", ")} }`;
  const object = (depth) => {
    let made = `z.${pick(["object", "object", "strictObject", "looseObject"])}(${fields(depth)})`;
    for (let steps = below(3); steps > 0; steps--) {
      made = pick([
        () => `z.extend(${made}, ${fields(depth, 2)})`, () => `z.pick(${made}, { a: true })`, () => `z.omit(${made}, { a: true })`, () => `z.partial(${made})`,
        () => `z.partial(${made}, { a: true })`, () => `z.required(${made})`, () => `z.catchall(${made}, ${simple()})`, () => `z.catchall(${made}, z.never())`,
        () => `z.merge(${made}, z.${pick(["object", "strictObject", "looseObject"])}(${fields(depth, 3)}))`,
      ])();
    }
    return made;
  };
  function any(depth) {
    if (depth <= 0) return simple();
    const inner = () => any(depth - 1);
    const made = pick([
      simple, simple, () => object(depth), () => object(depth), () => checked(`z.array(${inner()})`, ["minLength(1)", "maxLength(4)"]), () => `z.array(${inner()})`,
      () => `z.tuple([${inner()}, ${inner()}])`, () => `z.tuple([${inner()}], ${inner()})`, () => `z.record(z.string(), ${inner()})`, () => `z.record(z.enum(["k", "l"]), ${inner()})`,
      () => `z.union([${inner()}, ${inner()}])`, () => `z.discriminatedUnion("kind", [z.object({ kind: z.literal("p"), x: ${inner()} }), z.object({ kind: z.literal("q"), y: ${inner()} })])`,
      () => `z.intersection(z.object({ l: ${inner()} }), z.object({ r: ${inner()} }))`,
    ])();
    return pick([made, made, made, made, `z.nullable(${made})`, `z.readonly(${made})`, `${made}.check(z.describe("what it is"))`]);
  }
  function field(depth) {
    return pick([() => any(depth), () => any(depth), () => `z.optional(${any(depth)})`, () => `z.nullish(${any(depth)})`, () => 'z._default(z.string(), "d")', () => "z._default(z.number(), 0)"])();
  }
  return () => `z.object(${fields(3)})`;
}

function collect(make, z, convert) {
  const found = [];
  for (let tries = 0; found.length < COUNT && tries < COUNT * 2; tries++) {
    const expression = make();
    try {
      const schema = new Function("z", `return ${expression}`)(z);
      found.push({ expression, input: convert(schema, "input"), output: convert(schema, "output") });
    } catch (error) {
      // What zod refuses itself, such as a format without a name in JSON Schema.
      if (error instanceof SyntaxError) throw error;
    }
  }
  return found;
}

const { z } = require("zod");
const { z: z3 } = require("zod-v3");
const mini = require("zod/mini");
const { zodToJsonSchema } = require("zod-to-json-schema");
const plain = (json) => {
  delete json.$schema;
  return JSON.parse(JSON.stringify(json));
};
fs.writeFileSync(
  path.join(out, "schemas.json"),
  JSON.stringify({
    4: collect(generator(4, 4), z, (schema, io) => plain(z.toJSONSchema(schema, { io }))),
    mini: collect(miniGenerator(5), mini, (schema, io) => plain(z.toJSONSchema(schema, { io }))),
    3: collect(generator(3, 3), z3, (schema) => plain(zodToJsonSchema(schema, { $refStrategy: "none", removeAdditionalStrategy: "strict", target: "jsonSchema7" }))),
  }),
);
