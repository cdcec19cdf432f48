import { describe, expect, it } from "vitest";
import text from "../../openapi.json?raw";
import { commandLine, exampleOf } from "./curl";
import { listGroups, readDocument, type Schema } from "./openapi";

const document = readDocument(JSON.parse(text));
const operations = listGroups(document).flatMap((group) => group.operations);
const BASE = "http://127.0.0.1:8484";

function line(method: string, path: string): string {
  const operation = operations.find((one) => one.method === method && one.path === path);
  if (!operation) throw new Error(`no ${method} ${path}`);
  return commandLine(document, operation, BASE);
}

/** The words that a shell makes of a line without variables, which has single and double quotes only. */
function shellWords(command: string): string[] {
  return [...command.replaceAll(" \\\n", " ").matchAll(/(?:'[^']*'|"[^"]*"|\\'|[^\s'"])+/g)].map(([word]) =>
    word.replace(/'([^']*)'|"([^"]*)"|\\(')/g, (_, single?: string, double?: string, plain?: string) => single ?? double ?? plain ?? ""),
  );
}

describe("commandLine", () => {
  it("is one for every operation, at the server's address and without a part that is open", () => {
    for (const operation of operations) {
      const words = shellWords(commandLine(document, operation, BASE));
      const url = words.find((word) => /^(http|ws):\/\/127\.0\.0\.1:8484\//.test(word)) ?? "";
      expect(url, operation.path).toMatch(/^\w+:\/\/127\.0\.0\.1:8484\/[\w\-./?=&]+$/);
      expect(words.includes("Authorization: Bearer $TOKEN"), operation.path).toBe(operation.access.takesToken);
      const data = words[words.indexOf("--data") + 1] ?? "";
      if (words.includes("--data")) expect(typeof JSON.parse(data), operation.path).toBe("object");
      if (operation.body?.isRequired) expect(words.some((word) => word.startsWith("--data")), operation.path).toBe(true);
      for (const { name, in: place } of operation.parameters.filter((one) => one.required)) {
        if (place === "header") expect(words.some((word) => word.startsWith(`${name}: `)), operation.path).toBe(true);
      }
    }
  });

  it("is what the guide writes", () => {
    expect(line("GET", "/api/sessions/{id}")).toBe(`curl -H "Authorization: Bearer $TOKEN" \\\n  '${BASE}/api/sessions/ID'`);
    expect(line("GET", "/health/live")).toBe(`curl '${BASE}/health/live'`);
    expect(line("POST", "/api/tasks")).toBe(
      `curl -H "Authorization: Bearer $TOKEN" \\\n  -H 'Content-Type: application/json' \\\n  '${BASE}/api/tasks' \\\n  --data '{"task":"TASK"}'`,
    );
    expect(line("DELETE", "/api/workspaces/{id}")).toContain("curl -X DELETE");
    expect(line("POST", "/api/sessions/{id}/cancel")).toContain("curl -X POST");
    expect(line("PUT", "/api/workspaces")).toMatch(/-X PUT[^]*--data-binary @FILE$/);
    expect(line("GET", "/api/sessions/{id}/events")).toContain("--no-buffer");
    expect(line("GET", "/api/sessions/{id}/workspace")).toContain("--output FILE");
    expect(line("GET", "/api/sessions/{id}/terminal")).toMatch(/^websocat --binary[^]*'ws:\/\/127\.0\.0\.1:8484\/api\/sessions\/ID\/terminal'$/);
  });
});

describe("exampleOf", () => {
  it("has what is required, and ends", () => {
    const ref = { $ref: "#/components/schemas/Tree" };
    const schemas: Record<string, Schema> = {
      Tree: {
        type: "object",
        required: ["agentName", "kind", "count", "next", "list"],
        properties: { agentName: { type: "string" }, kind: { enum: ["it's"] }, count: { type: "integer", minimum: 5 }, next: ref, list: { type: "array", items: ref }, more: ref },
      },
    };
    const tree = { ...document, components: { schemas } };
    expect(exampleOf(tree, ref, "value", [])).toEqual({ agentName: "AGENT_NAME", kind: "it's", count: 5, next: {}, list: [] });
  });
});
