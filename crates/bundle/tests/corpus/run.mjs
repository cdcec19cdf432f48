// Runs modules and writes down what each returns, or that it threw:
//   node run.mjs DIRECTORY
// DIRECTORY/*.run.mjs have a function as their default export; what it returns is in DIRECTORY/*.declared.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const directory = path.resolve(process.argv[2]);
for (const file of fs.readdirSync(directory).filter((name) => name.endsWith(".run.mjs"))) {
  const to = path.join(directory, file.replace(/\.run\.mjs$/, ".declared"));
  try {
    const { default: declare } = await import(pathToFileURL(path.join(directory, file)));
    fs.writeFileSync(to, await declare());
  } catch (error) {
    fs.writeFileSync(to, `/* ${error.stack} */`);
  }
}
