// Builds the sources in `mapped` with source maps, in every way in which bundlers write them:
//   node maps.mjs DIRECTORY_OF_PACKAGES OUT
// OUT/index.json lists the bundles and, where it is a file of its own, the map.
import { createRequire } from "node:module";
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [packages, out] = process.argv.slice(2).map((name) => path.resolve(name));
const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const fromPackages = createRequire(path.join(packages, "index.js"));
const load = (name) => import(pathToFileURL(fromPackages.resolve(name)));
const esbuild = fromPackages("esbuild");
const { rollup } = await load("rollup");
const { minify } = await load("terser");

fs.cpSync(path.join(here, "mapped"), path.join(out, "src"), { recursive: true });
process.chdir(out);
fs.mkdirSync("dist");
const isOutside = (id) => /^(lightfast|@ai-sdk|zod|node:)/.test(id);
const bundles = [];
const write = (name, code, map) => {
  fs.writeFileSync(path.join("dist", name), code);
  if (map) fs.writeFileSync(path.join("dist", `${name}.map`), map);
  bundles.push({ file: `dist/${name}`, map: map ? `dist/${name}.map` : null });
};

for (const format of ["esm", "cjs"]) {
  for (const minified of [false, true]) {
    for (const sourcemap of ["inline", "linked", "external"]) {
      const name = `esbuild.${format}.${minified ? "min" : "plain"}.${sourcemap}.js`;
      const { outputFiles } = await esbuild.build({
        absWorkingDir: out, entryPoints: ["./src/broken.ts"], bundle: true, write: false, format, minify: minified, packages: "external", sourcemap,
        outfile: `dist/${name}`, platform: "node", target: "es2022", sourcesContent: true, charset: "utf8", logLevel: "error",
      });
      const text = (end) => outputFiles.find((file) => file.path.endsWith(end))?.text;
      write(name, text(".js"), text(".map"));
    }
  }
  const typescript = {
    name: "typescript",
    resolveId: (id, from) => (from && /^\.\.?\//.test(id) ? path.resolve(path.dirname(from), `${id}.ts`) : null),
    transform(code, id) {
      const made = esbuild.transformSync(code, { loader: "ts", target: "es2022", sourcemap: true, sourcefile: id, charset: "utf8" });
      return { code: made.code, map: made.map };
    },
  };
  for (const sourcemap of ["inline", true]) {
    const made = await rollup({ input: "src/broken.ts", external: isOutside, plugins: [typescript], onwarn() {} });
    const name = `rollup.${format}.${sourcemap === true ? "linked" : "inline"}.js`;
    const { output } = await made.generate({ format, sourcemap, file: `dist/${name}`, exports: "named" });
    const map = output.find((file) => file.fileName.endsWith(".map"));
    write(name, output[0].code, map?.source);
    if (sourcemap === true) {
      const small = await minify(output[0].code, { module: format === "esm", toplevel: true, sourceMap: { content: map.source, includeSources: true, url: "inline" } });
      write(`terser.${format}.inline.js`, small.code);
    }
  }
}
fs.writeFileSync("index.json", JSON.stringify(bundles));
