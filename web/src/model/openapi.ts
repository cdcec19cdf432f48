// The description of the API (OpenAPI 3.1) as the page about it shows it: operations by tag, and schemas one level at a
// time, with every `$ref` followed.
import { ApiError } from "../api/client";

/** Levels of fields within fields that are shown. */
export const MAX_DEPTH = 12;
/** References that lead to references are followed so far. */
const MAX_REFS = 8;
const METHODS = ["get", "put", "post", "delete", "patch", "head", "options", "trace"] as const;

export interface Reference {
  $ref: string;
}

/** A schema: a part of JSON Schema, as far as the page has words for it. */
export interface Schema {
  $ref?: string;
  title?: string;
  type?: string | string[];
  description?: string;
  format?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  items?: Schema;
  oneOf?: Schema[];
  anyOf?: Schema[];
  allOf?: Schema[];
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  pattern?: string;
}

export interface Parameter {
  name: string;
  in: string;
  description?: string;
  required?: boolean;
  schema?: Schema;
}

interface MediaType {
  schema?: Schema;
}

interface RequestBody {
  description?: string;
  required?: boolean;
  content?: Record<string, MediaType>;
}

interface ResponseObject {
  description?: string;
  headers?: Record<string, { description?: string; schema?: Schema } | Reference>;
  content?: Record<string, MediaType>;
}

interface SecurityScheme {
  type: string;
  scheme?: string;
  in?: string;
  name?: string;
  description?: string;
}

type SecurityRequirement = Record<string, string[]>;

interface OperationObject {
  tags?: string[];
  summary?: string;
  description?: string;
  parameters?: (Parameter | Reference)[];
  requestBody?: RequestBody | Reference;
  responses?: Record<string, ResponseObject | Reference>;
  security?: SecurityRequirement[];
}

/** What `/api/openapi.json` answers. */
export interface ApiDocument {
  openapi: string;
  info: { title: string; version: string; description?: string };
  tags?: { name: string; description?: string }[];
  paths: Record<string, Partial<Record<(typeof METHODS)[number], OperationObject>> & { parameters?: (Parameter | Reference)[] }>;
  components?: { schemas?: Record<string, Schema>; securitySchemes?: Record<string, SecurityScheme | Reference> };
  security?: SecurityRequirement[];
}

/** One form that a body may have. */
export interface Content {
  /** Such as `application/json`. */
  contentType: string;
  schema: Schema | null;
  /** Whether it is sent as it is, and is not JSON. */
  isRaw: boolean;
}

export interface Answer {
  /** Such as `200`, or `4XX` for all of these. */
  status: string;
  description: string;
  headers: { name: string; description: string; schema: Schema | null }[];
  contents: Content[];
}

/** Who may ask. */
export interface Access {
  /** Whether `Authorization: Bearer TOKEN` is one of the ways in. */
  takesToken: boolean;
  /** One sentence for people. */
  text: string;
}

/** A path and a method. */
export interface Operation {
  /** Names it in the page's address, behind `#`. */
  anchor: string;
  /** In capitals. */
  method: string;
  path: string;
  group: string;
  /** The first sentence of its summary, without a dot. */
  title: string;
  /** The rest of it, and the description. */
  details: string;
  parameters: Parameter[];
  body: { description: string; isRequired: boolean; contents: Content[] } | null;
  answers: Answer[];
  access: Access;
  /** Small letters in which words of the filter are looked for. */
  searchText: string;
}

export interface OperationGroup {
  name: string;
  /** The name as a heading has it. */
  title: string;
  description: string;
  operations: Operation[];
}

/** The description, or an error that says that this is none. */
export function readDocument(value: unknown): ApiDocument {
  const document = value as Partial<ApiDocument> | null;
  const isDocument =
    typeof document === "object" &&
    document !== null &&
    typeof document.openapi === "string" &&
    document.openapi.startsWith("3.") &&
    isObject(document.info) &&
    isObject(document.paths);
  if (isDocument) return document as ApiDocument;
  throw new ApiError(-1, "What the server answered is not a description of an API in the form of OpenAPI 3", "Reload the page.", "page");
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What a reference leads to, or nothing. Only references within the document are followed. */
function lookUp(document: ApiDocument, pointer: string): unknown {
  if (!pointer.startsWith("#/")) return undefined;
  let found: unknown = document;
  for (const part of pointer.slice(2).split("/")) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (!isObject(found) || !Object.hasOwn(found, name)) return undefined;
    found = found[name];
  }
  return found;
}

/** A part of the document that stands there or elsewhere in it. */
function resolve<T extends object>(document: ApiDocument, value: T | Reference): T {
  let found: unknown = value;
  for (let count = 0; count < MAX_REFS && isObject(found) && typeof found["$ref"] === "string"; count += 1) {
    found = lookUp(document, found["$ref"]);
  }
  if (isObject(found) && !("$ref" in found)) return found as T;
  throw new ApiError(-1, `The description of the API refers to ${JSON.stringify(value)}, which is not in it`, null, "page");
}

/** All operations: groups in the order of the document's tags, then in that of its paths. */
export function listGroups(document: ApiDocument): OperationGroup[] {
  const groups = new Map<string, OperationGroup>();
  for (const { name, description } of document.tags ?? []) groups.set(name, newGroup(name, description));
  const anchors = new Set<string>();
  for (const [path, item] of Object.entries(document.paths)) {
    for (const method of METHODS) {
      const operation = item[method];
      if (!operation) continue;
      const described = describeOperation(document, path, method, operation, item.parameters ?? []);
      while (anchors.has(described.anchor)) described.anchor += "-";
      anchors.add(described.anchor);
      const group = groups.get(described.group) ?? newGroup(described.group);
      groups.set(described.group, group);
      group.operations.push(described);
    }
  }
  return [...groups.values()].filter(({ operations }) => operations.length);
}

function newGroup(name: string, description = ""): OperationGroup {
  // Short names stand for several words.
  const title = name.length <= 3 ? name.toUpperCase() : name.charAt(0).toUpperCase() + name.slice(1);
  return { name, title, description, operations: [] };
}

function describeOperation(
  document: ApiDocument,
  path: string,
  method: string,
  operation: OperationObject,
  shared: (Parameter | Reference)[],
): Operation {
  const own = (operation.parameters ?? []).map((parameter) => resolve<Parameter>(document, parameter));
  const isOverridden = ({ name, in: place }: Parameter) => own.some((one) => one.name === name && one.in === place);
  const parameters = [...shared.map((parameter) => resolve<Parameter>(document, parameter)).filter((one) => !isOverridden(one)), ...own];
  const body = operation.requestBody ? resolve<RequestBody>(document, operation.requestBody) : null;
  const answers = Object.entries(operation.responses ?? {}).map(([status, response]) => describeAnswer(document, status, response));
  const { title, rest } = splitSummary(operation.summary ?? "");
  const details = [rest, joinLines(operation.description ?? "")].filter(Boolean).join("\n\n");
  const group = operation.tags?.[0] ?? path.split("/").find(Boolean) ?? "other";
  const contents = listContents(body?.content);
  const schemas = [...contents, ...answers.flatMap((answer) => answer.contents)].flatMap(({ schema }) => (schema ? [schema] : []));
  const names = new Set(parameters.map(({ name }) => name));
  for (const schema of schemas) collectNames(document, schema, names, new Set());
  return {
    anchor: `${method}${path.replace(/[^A-Za-z0-9]+/g, "-").replace(/-$/, "")}`,
    method: method.toUpperCase(),
    path,
    group,
    title,
    details,
    parameters,
    body: body ? { description: body.description ?? "", isRequired: body.required ?? false, contents } : null,
    answers,
    access: describeAccess(document, operation.security ?? document.security ?? []),
    searchText: [method, path, group, operation.summary, operation.description, ...names].join(" ").toLowerCase(),
  };
}

function describeAnswer(document: ApiDocument, status: string, response: ResponseObject | Reference): Answer {
  const { description, headers, content } = resolve<ResponseObject>(document, response);
  return {
    status,
    description: description ?? "",
    headers: Object.entries(headers ?? {}).map(([name, header]) => {
      const { description, schema } = resolve<{ description?: string; schema?: Schema }>(document, header);
      return { name, description: description ?? "", schema: schema ?? null };
    }),
    contents: listContents(content),
  };
}

function listContents(content: Record<string, MediaType> | undefined): Content[] {
  return Object.entries(content ?? {}).map(([contentType, { schema }]) => {
    const isRaw = !/^application\/(.*\+)?json\b/.test(contentType);
    return { contentType, schema: schema ?? null, isRaw };
  });
}

/** Texts come from comments in the source, whose lines end where the source's do. */
function joinLines(text: string): string {
  return text.replace(/([^\n])\n(?!\n)/g, "$1 ").trim();
}

function splitSummary(summary: string): { title: string; rest: string } {
  const text = joinLines(summary);
  const end = /[.!?](?=\s+[A-Z`])/.exec(text);
  const title = end ? text.slice(0, end.index) : text.replace(/\.$/, "");
  return { title, rest: end ? text.slice(end.index + 1).trim() : "" };
}

/** The names of all fields of a schema, for the filter. */
function collectNames(document: ApiDocument, schema: Schema, names: Set<string>, seen: Set<string>): void {
  if (schema.$ref !== undefined) {
    if (seen.has(schema.$ref)) return;
    seen.add(schema.$ref);
    const target = lookUp(document, schema.$ref);
    names.add(refName(schema.$ref));
    if (isObject(target)) collectNames(document, target, names, seen);
    return;
  }
  const inner = [...(schema.oneOf ?? []), ...(schema.anyOf ?? []), ...(schema.allOf ?? [])];
  if (schema.items) inner.push(schema.items);
  if (isObject(schema.additionalProperties)) inner.push(schema.additionalProperties);
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    names.add(name);
    inner.push(property);
  }
  for (const one of inner) collectNames(document, one, names, seen);
}

function describeAccess(document: ApiDocument, requirements: SecurityRequirement[]): Access {
  if (requirements.every((one) => Object.keys(one).length === 0)) return { takesToken: false, text: "Needs no token." };
  let takesToken = false;
  const ways = requirements.map((requirement) => {
    const schemes = Object.keys(requirement).map((name) => {
      const scheme = resolve<SecurityScheme>(document, document.components?.securitySchemes?.[name] ?? { $ref: name });
      const isBearer = scheme.type === "http" && scheme.scheme?.toLowerCase() === "bearer";
      takesToken ||= isBearer;
      if (isBearer) return "`Authorization: Bearer TOKEN`";
      return scheme.type === "apiKey" ? `the ${scheme.in} \`${scheme.name}\`` : name;
    });
    return schemes.length ? schemes.join(" and ") : "nothing at all";
  });
  return { takesToken, text: `Needs ${ways.join(", or ")}.` };
}

/** The operations that have every word of the filter, by group. */
export function filterGroups(groups: OperationGroup[], filter: string): OperationGroup[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return groups
    .map((group) => ({ ...group, operations: group.operations.filter(({ searchText }) => words.every((word) => searchText.includes(word))) }))
    .filter(({ operations }) => operations.length);
}

/** Why a schema is not shown further. */
export type SchemaEnd = "repeats" | "deep" | "missing";

/** A field, or one of several forms. */
export interface SchemaRow {
  name: string;
  kind: "field" | "form";
  isRequired: boolean;
  /** What it is like, for `describeSchema`. */
  schema: Schema;
}

/** One level of a schema. */
export interface SchemaView {
  /** Such as `SessionView`, `array of string` or `integer or null`. */
  type: string;
  /** Its type in JSON besides `null`; empty for several forms. */
  base: string;
  description: string;
  /** Bounds and the like, each a few words. */
  facts: string[];
  /** All values that it may have, in JSON; empty when there are others. */
  values: string[];
  rows: SchemaRow[];
  /** Names of the schemas that lead here, this one's included: what `describeSchema` needs for the rows. */
  trail: readonly string[];
  end: SchemaEnd | null;
}

function refName(ref: string): string {
  return ref.slice(ref.lastIndexOf("/") + 1);
}

/** One level of a schema. `trail` is that of the level above; it ends schemas that contain themselves. */
export function describeSchema(document: ApiDocument, schema: Schema, trail: readonly string[] = []): SchemaView {
  const view: SchemaView = { type: "", base: "", description: joinLines(schema.description ?? ""), facts: [], values: [], rows: [], trail, end: null };
  let found = schema;
  let name = "";
  for (let count = 0; found.$ref !== undefined; count += 1) {
    name = refName(found.$ref);
    const target = lookUp(document, found.$ref);
    if (!isObject(target) || count >= MAX_REFS) return { ...view, type: name, end: "missing" };
    if (trail.includes(name)) return { ...view, type: name, end: "repeats" };
    view.trail = [...view.trail, name];
    found = target;
    view.description ||= joinLines(found.description ?? "");
  }
  // A level without a name has its place in the trail, too, so that the trail's length is the depth.
  if (!name) view.trail = [...view.trail, ""];
  if (view.trail.length > MAX_DEPTH) return { ...view, type: name || typeWord(found), end: "deep" };

  const forms = found.oneOf ?? found.anyOf;
  if (forms) return describeForms(document, found, forms, name, view);
  if (found.allOf) return describeMerged(document, found, found.allOf, name, view);
  view.base = types(found).find((type) => type !== "null") ?? (found.properties ? "object" : "");
  view.facts = listFacts(found);
  view.values = (found.enum ?? ("const" in found ? [found.const] : [])).map((value) => JSON.stringify(value));
  const element = found.items;
  if (element && includesType(found, "array")) {
    const inner = describeSchema(document, element, view.trail);
    const description = view.description || inner.description;
    const type = name || `array of ${inner.type}${orNull(found)}`;
    return { ...inner, type, base: view.base, description, facts: [...view.facts, ...inner.facts] };
  }
  if (isObject(found.additionalProperties)) {
    const inner = describeSchema(document, found.additionalProperties, view.trail);
    view.rows = listFields(found);
    if (view.rows.length) view.rows.push({ name: "any other", kind: "field", isRequired: false, schema: found.additionalProperties });
    else view.rows = inner.rows;
    return { ...view, type: name || `map of ${inner.type}${orNull(found)}` };
  }
  return { ...view, type: name || typeWord(found), rows: listFields(found) };
}

/** Several forms, of which `null` alone is none that is worth a row. */
function describeForms(document: ApiDocument, schema: Schema, forms: Schema[], name: string, view: SchemaView): SchemaView {
  const others = forms.filter((form) => form.type !== "null");
  const suffix = others.length < forms.length ? " or null" : "";
  const only = others.length === 1 ? others[0] : undefined;
  if (only) {
    const inner = describeSchema(document, only, view.trail);
    return { ...inner, type: `${name || inner.type}${suffix}`, description: view.description || inner.description };
  }
  const rows: SchemaRow[] = others.map((form, index) => ({ name: formName(document, form, index), kind: "form", isRequired: false, schema: form }));
  return { ...view, type: `${name || "one of several"}${suffix}`, rows, facts: listFacts(schema) };
}

function formName(document: ApiDocument, form: Schema, index: number): string {
  if (form.title) return form.title;
  if (form.$ref !== undefined) return refName(form.$ref);
  const parts = form.allOf ?? [form];
  for (const part of parts) {
    // What tells the forms apart is a field with one value, or the only one that each needs.
    const told = Object.entries(part.properties ?? {}).find(([, { enum: values }]) => values?.length === 1);
    if (told) return `${told[0]} = ${JSON.stringify(told[1].enum?.[0])}`;
  }
  if (form.required?.length === 1) return `with ${form.required[0]}`;
  return form.type ? describeSchema(document, form).type : `form ${index + 1}`;
}

/** All parts at once: fields of objects together, and what else they say one after the other. */
function describeMerged(document: ApiDocument, schema: Schema, parts: Schema[], name: string, view: SchemaView): SchemaView {
  const views = parts.map((part) => describeSchema(document, part, view.trail));
  const own = listFields(schema);
  const names = views.filter(({ rows }, index) => parts[index]?.$ref !== undefined || !rows.length).map(({ type }) => type);
  const first = views.find(({ description }) => description);
  return {
    ...view,
    type: name || [...new Set(names)].join(" and ") || "object",
    base: views.find(({ base }) => base)?.base ?? "",
    description: view.description || (first?.description ?? ""),
    facts: [...listFacts(schema), ...views.flatMap(({ facts }) => facts)],
    values: views.flatMap(({ values }) => values),
    rows: [...views.flatMap(({ rows }) => rows), ...own],
    trail: [...view.trail, ...views.flatMap((part) => part.trail.slice(view.trail.length)).filter(Boolean)],
    end: views.find(({ end }) => end)?.end ?? null,
  };
}

function listFields(schema: Schema): SchemaRow[] {
  const required = new Set(schema.required ?? []);
  const rows = Object.entries(schema.properties ?? {}).map(([name, property]): SchemaRow => ({
    name,
    kind: "field",
    isRequired: required.has(name),
    schema: property,
  }));
  // What must be there comes first; the sort keeps the order otherwise.
  return rows.sort((one, other) => Number(other.isRequired) - Number(one.isRequired));
}

function types(schema: Schema): string[] {
  if (schema.type === undefined) return [];
  return Array.isArray(schema.type) ? schema.type : [schema.type];
}

function includesType(schema: Schema, type: string): boolean {
  return types(schema).includes(type);
}

function orNull(schema: Schema): string {
  return includesType(schema, "null") ? " or null" : "";
}

function typeWord(schema: Schema): string {
  const words = types(schema);
  if (words.length) return words.join(" or ");
  return schema.properties ? "object" : "any JSON";
}

function listFacts(schema: Schema): string[] {
  const facts: string[] = [];
  const isWhole = schema.format === "int32" || schema.format === "int64" || schema.format === "double";
  if (schema.format && !isWhole) facts.push(schema.format);
  const { minimum, maximum, minLength, maxLength, minItems, maxItems, pattern } = schema;
  if (minimum !== undefined && maximum !== undefined) facts.push(`${minimum} to ${maximum}`);
  // That a number is not negative goes without saying for sizes and counts.
  else if (minimum !== undefined && minimum !== 0) facts.push(`at least ${minimum}`);
  else if (maximum !== undefined) facts.push(`at most ${maximum}`);
  if (minLength !== undefined) facts.push(`at least ${minLength} characters`);
  if (maxLength !== undefined) facts.push(`at most ${maxLength} characters`);
  if (minItems !== undefined) facts.push(`at least ${minItems} items`);
  if (maxItems !== undefined) facts.push(`at most ${maxItems} items`);
  if (pattern !== undefined) facts.push(`matches ${pattern}`);
  if (schema.default !== undefined) facts.push(`default ${JSON.stringify(schema.default)}`);
  if (schema.additionalProperties === false) facts.push("other fields are refused");
  return facts;
}
