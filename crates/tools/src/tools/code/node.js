// Executes cells in one global scope. In: one JSON object a line, {"token", "source"}. Out: for each cell a
// mark, what it prints and the value of its last expression (awaited if it is a promise), and another
// mark that says how it ended.
'use strict';
{
  const fs = require('fs');
  const util = require('util');
  const vm = require('vm');
  const out = process.stdout.write.bind(process.stdout);
  process.stderr.write = out;
  let interrupt = null;
  const tell = (error) => out(util.inspect(error) + '\n');
  process.on('uncaughtException', tell);
  process.on('unhandledRejection', tell);
  process.on('SIGINT', () => interrupt && interrupt(new Error('interrupted')));
  const run = async (line, number) => {
    const { token, source } = JSON.parse(line);
    const mark = (word) => out(`\x1e${token} ${word}\n`);
    mark('begin');
    try {
      const stop = new Promise((_, reject) => { interrupt = reject; });
      const options = { filename: `<cell ${number}>`, breakOnSigint: true };
      const value = await Promise.race([stop, vm.runInThisContext(source, options)]);
      if (value !== undefined) out(util.inspect(value) + '\n');
      interrupt = null;
      mark('ok');
    } catch (error) {
      interrupt = null;
      out((error && error.stack ? error.stack : util.inspect(error)) + '\n');
      mark('failed');
    }
  };
  let before = Promise.resolve();
  let number = 0;
  require('readline')
    .createInterface({ input: fs.createReadStream(null, { fd: 0 }) })
    .on('line', (line) => { const own = ++number; before = before.then(() => run(line, own)); })
    .on('close', () => { before.then(() => process.exit(0)); });
}
