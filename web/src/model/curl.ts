// One command line for each operation of the API: `curl`, or `websocat` where the answer is a WebSocket.
import { type ApiDocument, type Content, describeSchema, type Operation, type Schema } from "./openapi";

/** Levels of an example's fields within fields. */
const MAX_DEPTH = 6;

/** A placeholder that a reader replaces. It is no shell variable: `$PATH` would be a value. */
function placeholder(name: string): string {
  return name.replace(/([a-z])([A-Z])/g, "$1_$2").replace(/[^A-Za-z0-9]+/g, "_").toUpperCase();
}

/** A word in single quotes, within which a shell replaces nothing. */
function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** A command line that makes the request at `baseUrl`, such as `http://127.0.0.1:8484`; the token is in `$TOKEN`. */
export function commandLine(document: ApiDocument, operation: Operation, baseUrl: string): string {
  const isSocket = operation.answers.some(({ status }) => status === "101");
  const path = operation.path.replace(/\{([^}]+)\}/g, (_, name: string) => placeholder(name));
  const required = operation.parameters.filter((parameter) => parameter.required);
  const query = required.filter((parameter) => parameter.in === "query").map(({ name }) => `${encodeURIComponent(name)}=${placeholder(name)}`);
  const base = isSocket ? baseUrl.replace(/^http/, "ws") : baseUrl;
  const url = quote(`${base}${path}${query.length ? `?${query.join("&")}` : ""}`);
  const headers = operation.access.takesToken ? ['"Authorization: Bearer $TOKEN"'] : [];
  for (const { name } of required.filter((parameter) => parameter.in === "header")) headers.push(quote(`${name}: ${placeholder(name)}`));
  if (isSocket) return joinParts("websocat --binary", [...headers.map((header) => `-H ${header}`), url]);

  const success = operation.answers.filter(({ status }) => /^[123]/.test(status));
  const types = success.flatMap(({ contents }) => contents.map(({ contentType }) => contentType));
  const isStream = types.includes("text/event-stream");
  const [form] = operation.body?.contents ?? [];
  const options: string[] = [];
  // Data alone make it a POST.
  const usual = form ? "POST" : "GET";
  if (operation.method !== usual) options.push(`-X ${operation.method}`);
  if (isStream) options.push("--no-buffer");
  if (success.every(({ status }) => status.startsWith("3")) && success.length) options.push("--include");
  if (types.some((type) => /octet-stream|zip/.test(type))) options.push("--output FILE");
  if (isStream) headers.push(`'Accept: ${form ? "application/json, " : ""}text/event-stream'`);
  if (form) headers.push(quote(`Content-Type: ${form.contentType}`));
  return joinParts("curl", [...options, ...headers.map((header) => `-H ${header}`), url, ...(form ? [dataOption(document, form)] : [])]);
}

function joinParts(program: string, parts: string[]): string {
  return [program, ...parts].join(" \\\n  ").replace(/^curl \\\n {2}/, "curl ");
}

function dataOption(document: ApiDocument, form: Content): string {
  if (form.isRaw) return "--data-binary @FILE";
  const example = form.schema ? exampleOf(document, form.schema, "value", []) : {};
  return `--data ${quote(JSON.stringify(example))}`;
}

/** The smallest value that has all that must be there. `name` is that of its field. */
export function exampleOf(document: ApiDocument, schema: Schema, name: string, trail: readonly string[]): unknown {
  const view = describeSchema(document, schema, trail);
  if (view.base === "array") return [];
  const [value] = view.values;
  if (value !== undefined) return JSON.parse(value);
  const isDeep = view.end !== null || view.trail.length > MAX_DEPTH;
  const form = view.rows.find(({ kind }) => kind === "form");
  if (form) return isDeep ? null : exampleOf(document, form.schema, name, view.trail);
  switch (view.base) {
    case "string":
      return placeholder(name);
    case "integer":
    case "number":
      return Math.max(schema.minimum ?? 1, 1);
    case "boolean":
      return true;
    default: {
      const fields = isDeep ? [] : view.rows.filter(({ isRequired }) => isRequired);
      return Object.fromEntries(fields.map((row) => [row.name, exampleOf(document, row.schema, row.name, view.trail)]));
    }
  }
}
