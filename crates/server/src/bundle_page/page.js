// The page of `glovebox bundle dev`: shows what was read of the bundle each time it is saved, and calls its tools.
"use strict";
const element = (id) => document.getElementById(id);
const code = location.hash.slice(1);
let tools = [];

// All text of a bundle is put in as text, never as markup.
function add(parent, name, text, className) {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  // Long lines are scrolled with the keyboard, too.
  if (name === "pre") made.tabIndex = 0;
  parent.append(made);
  return made;
}

async function ask(path, body) {
  const answer = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers: { "x-glovebox-code": code, ...(body === undefined ? {} : { "content-type": "application/json" }) },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (answer.status === 204) return undefined;
  if (!answer.ok) throw new Error((await answer.text()).trim() || `the page's server answered ${answer.status}`);
  return answer.json();
}

function showProblems(problems) {
  const place = element("problems");
  place.replaceChildren();
  if (problems.length === 0) add(place, "p", "None.");
  for (const problem of problems) {
    const one = add(place, "article", "", problem.is_error ? "error" : "warning");
    add(one, "h3", `${problem.code} ${problem.path}`.trim());
    add(one, "p", problem.reason);
    add(one, "pre", problem.text);
  }
}

/** Something that has the right form, to begin with. */
function example(schema, depth = 0) {
  if (depth > 5 || typeof schema !== "object" || schema === null) return null;
  if ("default" in schema) return schema.default;
  if ("const" in schema) return schema.const;
  if (Array.isArray(schema.enum)) return schema.enum[0];
  const first = (schema.anyOf ?? schema.oneOf ?? [])[0];
  if (first !== undefined) return example(first, depth + 1);
  switch (Array.isArray(schema.type) ? schema.type[0] : schema.type) {
    case "object":
      return Object.fromEntries((schema.required ?? []).map((name) => [name, example(schema.properties?.[name] ?? {}, depth + 1)]));
    case "array": return [];
    case "string": return "";
    case "number": case "integer": return Math.max(0, schema.minimum ?? 0);
    case "boolean": return false;
    default: return null;
  }
}

/** What the chosen tool is for and takes. Its arguments, which may be half written, stay. */
function describe() {
  const tool = tools[element("tool").selectedIndex];
  element("about").textContent = tool === undefined ? "There is no tool that can be called." : tool.description ?? "";
  element("schema").textContent = tool === undefined ? "" : JSON.stringify(tool.input_schema, null, 2);
  return tool;
}

function showTool() {
  const tool = describe();
  element("call").disabled = tool === undefined;
  if (tool !== undefined) element("arguments").value = JSON.stringify(example(tool.input_schema), null, 2);
}

function show(state) {
  document.title = `${state.error_count > 0 ? "✗" : "✓"} ${state.file}`;
  element("file").textContent = state.file;
  element("status").textContent = state.message;
  element("status").className = state.error_count > 0 ? "error" : "";
  showProblems(state.problems);
  const chosen = element("tool").value;
  tools = state.tools;
  element("tool").replaceChildren(...tools.map((tool) => {
    const name = tool.agent === null ? tool.name : `${tool.agent}: ${tool.name}`;
    return new Option(name, JSON.stringify([tool.agent, tool.name]));
  }));
  if (tools.some((tool) => JSON.stringify([tool.agent, tool.name]) === chosen)) {
    element("tool").value = chosen;
    describe();
  } else {
    showTool();
  }
}

element("tool").addEventListener("change", showTool);
element("try").addEventListener("submit", async (event) => {
  event.preventDefault();
  const place = element("result");
  const tool = tools[element("tool").selectedIndex];
  place.replaceChildren();
  element("call").disabled = true;
  try {
    const args = JSON.parse(element("arguments").value);
    const done = await ask("/api/call", { agent: tool.agent, tool: tool.name, arguments: args });
    add(place, "h3", done.success ? `Result, after ${Math.round(done.data.wall_ms)} ms` : done.message, done.success ? "" : "error");
    if (done.success) add(place, "pre", JSON.stringify(done.data.result, null, 2));
    if (done.data.stack) add(place, "pre", done.data.stack);
    for (const record of done.data.log ?? []) add(place, "pre", `${record.level}: ${record.text}`, "log");
  } catch (error) {
    add(place, "p", error instanceof SyntaxError ? `The arguments are no JSON: ${error.message}` : error.message, "error");
  } finally {
    element("call").disabled = tools.length === 0;
  }
});

(async () => {
  let after;
  for (;;) {
    try {
      const state = await ask(after === undefined ? "/api/state" : `/api/state?after=${after}`);
      if (state !== undefined) {
        after = state.number;
        show(state);
      }
    } catch (error) {
      element("status").textContent = `Not connected: ${error.message}`;
      element("status").className = "error";
      await new Promise((done) => setTimeout(done, 2000));
    }
  }
})();
