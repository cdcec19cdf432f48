// Builds every source with every builder, format and setting, runs each result, and writes down what it declares:
//   node build.mjs DIRECTORY_OF_PACKAGES OUT
// OUT/index.json lists the bundles; what `declared` says of each was seen by running it.
import { createRequire } from "node:module";
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [packages, out] = process.argv.slice(2).map((name) => path.resolve(name));
const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const fromPackages = createRequire(path.join(packages, "index.js"));
const load = (name) => import(pathToFileURL(fromPackages.resolve(name)));

const BUILDERS = ["esbuild", "tsup", "rollup", "terser"];
const FORMATS = ["esm", "cjs", "iife"];
// With zod inside a bundle is large and slow to make, so not every source is built that way.
const hasZodInside = (name, builder, format) =>
  ["esbuild", "tsup"].includes(builder) ? ["greeter", "schemas", "mini"].includes(name) : name === "greeter" && format === "esm";
const EXTERNAL = [/^lightfast\//, /^ai$/, /^@ai-sdk\//, /^node:/];
const GLOBAL = "bundle";

// Packages are found from where sources and results lie.
fs.cpSync(path.join(here, "sources"), path.join(out, "sources"), { recursive: true });
fs.mkdirSync(path.join(out, "node_modules"), { recursive: true });
for (const name of fs.readdirSync(path.join(packages, "node_modules"))) {
  fs.symlinkSync(path.join(packages, "node_modules", name), path.join(out, "node_modules", name));
}
fs.cpSync(path.join(here, "lightfast"), path.join(out, "node_modules/lightfast"), { recursive: true });
process.chdir(out);

const esbuild = fromPackages("esbuild");
const { build: tsup } = fromPackages("tsup");
const { rollup } = await load("rollup");
const { nodeResolve } = await load("@rollup/plugin-node-resolve");
const { minify } = await load("terser");
const { z } = await load("zod");

const isOutside = (id, zod) => EXTERNAL.some((known) => known.test(id)) || (zod === "external" && /^zod(\/|$)/.test(id));
// Both take patterns, which esbuild does not.
const names = (zod) => ["lightfast/*", "ai", "@ai-sdk/*", "node:*", ...(zod === "external" ? ["zod", "zod/*"] : [])];

const build = {
  async esbuild(entry, { format, minified, zod }) {
    const { outputFiles } = await esbuild.build({
      entryPoints: [entry], bundle: true, write: false, format, minify: minified, external: names(zod),
      platform: "node", target: "es2022", globalName: format === "iife" ? GLOBAL : undefined, logLevel: "error",
    });
    return outputFiles[0].text;
  },
  async tsup(entry, { format, minified, zod }) {
    const outDir = path.join(out, "tsup");
    await tsup({
      entry: [entry], outDir, clean: true, config: false, silent: true, format, minify: minified, treeshake: false,
      // Its own setting `external` says nothing about `iife`.
      noExternal: [/.*/], esbuildOptions: (options) => { options.external = names(zod); },
      globalName: format === "iife" ? GLOBAL : undefined, target: "es2022", platform: "node",
    });
    return fs.readFileSync(path.join(outDir, fs.readdirSync(outDir).find((name) => /js$/.test(name))), "utf8");
  },
  async rollup(entry, { format, minified, zod }) {
    const typescript = {
      name: "typescript",
      resolveId: (id, from) => (from && /^\.\.?\//.test(id) && !/node_modules/.test(from) ? path.resolve(path.dirname(from), `${id}.ts`) : null),
      transform: (code, id) => (id.endsWith(".ts") ? esbuild.transformSync(code, { loader: "ts", target: "es2022" }).code : null),
    };
    const made = await rollup({ input: entry, external: (id) => isOutside(id, zod), plugins: [typescript, nodeResolve()], onwarn() {} });
    // What is outside of an `iife` of rollup are globals; `umd` is its form for scripts that says where they come from.
    const { output } = await made.generate({ format: format === "iife" ? "umd" : format, name: GLOBAL, exports: "named" });
    return minified ? (await minify(output[0].code, { module: format === "esm", toplevel: true })).code : output[0].code;
  },
  async terser(entry, { format, minified, zod }) {
    const plain = await build.esbuild(entry, { format, minified: false, zod });
    const options = minified
      ? { module: format === "esm", compress: { passes: 2, unsafe_arrows: true }, mangle: { toplevel: format !== "iife" } }
      : { module: format === "esm", mangle: false, format: { beautify: true } };
    return (await minify(plain, options)).code;
  },
};

async function run(file, format) {
  if (format === "esm") return import(pathToFileURL(file));
  const module = { exports: {} };
  const code = `${fs.readFileSync(file, "utf8")}\n;return typeof ${GLOBAL} === "undefined" ? undefined : ${GLOBAL};`;
  return new Function("require", "module", "exports", code)(createRequire(file), module, module.exports) ?? module.exports;
}

function jsonSchema(schema, io) {
  if (!schema) return null;
  const json = schema._zod ? z.toJSONSchema(schema, { io }) : schema.jsonSchema;
  delete json.$schema;
  return JSON.parse(JSON.stringify(json));
}

const toolOf = ([name, value]) => {
  const tool = typeof value === "function" ? value({}) : value;
  return {
    name,
    description: tool.description ?? null,
    input_schema: jsonSchema(tool.inputSchema, "input"),
    output_schema: jsonSchema(tool.outputSchema, "output"),
    executable: typeof tool.execute === "function",
  };
};

function agentOf([key, { isAgent, name, system, model, tools = {}, ...options }]) {
  if (!isAgent) throw new Error(`${key} is no agent`);
  return {
    key, name, system,
    model: typeof model === "string" ? { provider: null, name: model } : { provider: model.provider.split(".")[0], name: model.modelId },
    tools: Object.entries(typeof tools === "function" ? tools({}) : tools).map(toolOf),
    options: Object.entries(options).filter(([, value]) => typeof value !== "function"),
  };
}

function declared(exports) {
  const values = [exports, ...Object.values(exports), ...Object.values(exports.default ?? {})];
  const config = values.find((value) => value?.isConfig);
  if (config) return { agents: Object.entries(config.agents).map(agentOf), tools: [], metadata: config.metadata ?? null };
  const tools = Object.entries(exports).filter(([name, value]) => name !== "default" && value?.inputSchema);
  return { agents: [], tools: tools.sort(([a], [b]) => (a < b ? -1 : 1)).map(toolOf), metadata: null };
}

const bundles = [];
for (const source of fs.readdirSync(path.join(out, "sources")).filter((name) => name.endsWith(".ts"))) {
  const name = path.basename(source, ".ts");
  for (const builder of BUILDERS) {
    for (const format of FORMATS) {
      for (const minified of [false, true]) {
        for (const zod of hasZodInside(name, builder, format) ? ["external", "inside"] : ["external"]) {
          const code = await build[builder](path.join(out, "sources", source), { format, minified, zod });
          const file = path.join(out, `${name}.${builder}.${format}.${minified ? "min" : "plain"}.zod-${zod}.${format === "esm" ? "mjs" : "cjs"}`);
          fs.writeFileSync(file, code);
          bundles.push({ file: path.basename(file), source: name, builder, format, minified, zod, declared: declared(await run(file, format)) });
        }
      }
    }
  }
}
fs.writeFileSync(path.join(out, "index.json"), JSON.stringify(bundles));
