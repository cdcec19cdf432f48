import { describe, expect, it } from "vitest";
import text from "../../openapi.json?raw";
import { type ApiDocument, describeSchema, filterGroups, listGroups, MAX_DEPTH, type Operation, readDocument, type Schema, type SchemaView } from "./openapi";

const real = readDocument(JSON.parse(text));
const operations = listGroups(real).flatMap((group) => group.operations);

function find(method: string, path: string): Operation {
  const found = operations.find((operation) => operation.method === method && operation.path === path);
  if (!found) throw new Error(`no ${method} ${path}`);
  return found;
}

function withSchemas(schemas: Record<string, Schema>): ApiDocument {
  return { openapi: "3.1.0", info: { title: "T", version: "1" }, paths: {}, components: { schemas } };
}

/** Every level of a schema, as a reader who opens all of it sees them. */
function walk(document: ApiDocument, schema: Schema, visit: (view: SchemaView) => void, trail: readonly string[] = []): void {
  const view = describeSchema(document, schema, trail);
  visit(view);
  for (const row of view.rows) walk(document, row.schema, visit, view.trail);
}

function schemasOf({ parameters, body, answers }: Operation): Schema[] {
  const contents = [...(body?.contents ?? []), ...answers.flatMap((answer) => answer.contents)];
  const headers = answers.flatMap((answer) => answer.headers);
  return [...parameters, ...contents, ...headers].flatMap(({ schema }) => (schema ? [schema] : []));
}

describe("the description of this server", () => {
  it("has every path and method, each with a title, an answer and an anchor of its own", () => {
    const written = Object.entries(real.paths).flatMap(([path, item]) => Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`));
    expect(operations.map(({ method, path }) => `${method} ${path}`).sort()).toEqual(written.sort());
    expect(operations.length).toBeGreaterThan(50);
    expect(new Set(operations.map(({ anchor }) => anchor)).size).toBe(operations.length);
    for (const { anchor, path, title, answers } of operations) {
      expect(anchor).toMatch(/^[A-Za-z0-9-]+$/);
      expect(title, path).not.toBe("");
      expect(answers.length, path).toBeGreaterThan(0);
    }
  });

  it("says what every schema is at every level", () => {
    let count = 0;
    for (const operation of operations) {
      for (const schema of schemasOf(operation)) {
        walk(real, schema, (view) => {
          count += 1;
          expect(view.type, `${operation.method} ${operation.path}`).not.toBe("");
          expect(view.end, `${operation.method} ${operation.path}: ${view.type}`).toBeNull();
        });
      }
    }
    expect(count).toBeGreaterThan(500);
  });

  it("says who may ask", () => {
    expect(find("GET", "/health/ready").access).toEqual({ takesToken: false, text: "Needs no token." });
    const guarded = operations.filter(({ access }) => access.takesToken);
    expect(guarded.map(({ path }) => path)).toContain("/api/tasks");
    expect(guarded).toHaveLength(operations.length - 2);
    expect(find("POST", "/api/tasks").access.text).toBe("Needs `Authorization: Bearer TOKEN`.");
  });

  it("has a description for each group", () => {
    for (const group of listGroups(real)) expect(group.description, group.name).not.toBe("");
    expect(listGroups(real)[0]?.name).toBe("sessions");
  });

  it("shows a task's fields, those that are required first, with what stands behind references", () => {
    const schema = find("POST", "/api/tasks").body?.contents[0]?.schema ?? {};
    const view = describeSchema(real, schema);
    expect(view).toMatchObject({ type: "TaskRequest", base: "object", facts: ["other fields are refused"], end: null });
    expect(view.rows[0]).toMatchObject({ name: "task", isRequired: true });
    const field = (name: string) => describeSchema(real, view.rows.find((row) => row.name === name)?.schema ?? {}, view.trail);
    expect(field("model").type).toBe("string or null");
    expect(field("limits").rows.map(({ name }) => name)).toContain("max_turns");
    const workspace = field("workspace");
    expect(workspace.type).toBe("WorkspaceChoice or null");
    expect(workspace.rows.map(({ name, kind }) => `${kind} ${name}`)).toEqual(["form with source", "form with upload"]);
  });

  it("is found by words of its paths, its texts and its fields", () => {
    const found = (filter: string) => filterGroups(listGroups(real), filter).flatMap((group) => group.operations.map(({ method, path }) => `${method} ${path}`));
    expect(found("checkpoints POST")).toContain("POST /api/sessions/{id}/checkpoints");
    expect(found("max_cost_usd")).toContain("POST /api/tasks");
    expect(found("WebSocket shell")).toContain("GET /api/sessions/{id}/terminal");
    expect(found("no such words")).toEqual([]);
    expect(found("  ")).toHaveLength(operations.length);
  });
});

describe("describeSchema", () => {
  it("ends what contains itself", () => {
    const tree = withSchemas({ Tree: { type: "object", properties: { next: { $ref: "#/components/schemas/Tree" }, all: { type: "array", items: { $ref: "#/components/schemas/Tree" } } } } });
    const ends: (string | null)[] = [];
    walk(tree, { $ref: "#/components/schemas/Tree" }, ({ type, end }) => ends.push(`${type}: ${end}`));
    expect(ends).toEqual(["Tree: null", "Tree: repeats", "array of Tree: repeats"]);
  });

  it("ends what is deep, and references in a circle", () => {
    let deep: Schema = { type: "string" };
    for (let count = 0; count < 100; count += 1) deep = { type: "object", properties: { inner: deep } };
    const seen: (string | null)[] = [];
    walk(withSchemas({}), deep, ({ end }) => seen.push(end));
    expect(seen).toHaveLength(MAX_DEPTH + 1);
    expect(seen.at(-1)).toBe("deep");
    const circle = withSchemas({ A: { $ref: "#/components/schemas/B" }, B: { $ref: "#/components/schemas/A" } });
    expect(describeSchema(circle, { $ref: "#/components/schemas/A" }).end).not.toBeNull();
  });

  it("says what it cannot find, also where objects have names of their own", () => {
    for (const $ref of ["#/components/schemas/Absent", "#/components/schemas/toString", "https://example.com/schema.json"]) {
      expect(describeSchema(withSchemas({}), { $ref }).end, $ref).toBe("missing");
    }
  });

  it("has a word for every form of type", () => {
    const document = withSchemas({
      Kind: { type: "string", enum: ["a", "b"], description: "Of two." },
      Base: { type: "object", required: ["id"], properties: { id: { type: "integer", minimum: 1, maximum: 9 } } },
    });
    const type = (schema: Schema) => describeSchema(document, schema).type;
    expect(type({})).toBe("any JSON");
    expect(type({ type: ["integer", "null"] })).toBe("integer or null");
    expect(type({ type: "array", items: { type: "string" } })).toBe("array of string");
    expect(type({ type: "object", additionalProperties: { type: "string" } })).toBe("map of string");
    expect(type({ oneOf: [{ type: "null" }, { $ref: "#/components/schemas/Kind" }] })).toBe("Kind or null");
    expect(describeSchema(document, { $ref: "#/components/schemas/Kind", description: "This one." })).toMatchObject({
      description: "This one.",
      values: ['"a"', '"b"'],
      base: "string",
    });
    const merged = describeSchema(document, { allOf: [{ $ref: "#/components/schemas/Base" }, { type: "object", properties: { more: {} } }] });
    expect(merged).toMatchObject({ type: "Base", base: "object" });
    expect(merged.rows.map(({ name }) => name)).toEqual(["id", "more"]);
    expect(describeSchema(document, merged.rows[0]?.schema ?? {}).facts).toEqual(["1 to 9"]);
    const told = { type: "object", properties: { type: { enum: ["x"] } } };
    expect(describeSchema(document, { oneOf: [told, { type: "string" }] }).rows.map(({ name }) => name)).toEqual(['type = "x"', "string"]);
  });
});

describe("readDocument", () => {
  it("refuses what is none", () => {
    for (const value of [null, [], "3.1.0", {}, { openapi: "2.0", info: {}, paths: {} }, { openapi: "3.1.0", info: {}, paths: [] }]) {
      expect(() => readDocument(value)).toThrow(/not a description/);
    }
  });

  it("leads to no parts that are not there", () => {
    const broken: ApiDocument = { ...withSchemas({}), paths: { "/a": { get: { parameters: [{ $ref: "#/components/parameters/Absent" }] } } } };
    expect(() => listGroups(broken)).toThrow(/Absent/);
  });

  it("takes parameters of the path along, and gives operations without a tag a group", () => {
    const shared = { name: "id", in: "path", required: true };
    const document: ApiDocument = { ...withSchemas({}), paths: { "/things/{id}": { parameters: [shared], get: {}, delete: { parameters: [{ ...shared, description: "Own." }] } } } };
    const [group] = listGroups(document);
    expect(group?.name).toBe("things");
    expect(group?.operations.map(({ parameters }) => parameters.map(({ description }) => description))).toEqual([[undefined], ["Own."]]);
  });
});
