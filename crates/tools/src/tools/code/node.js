// Executes cells in one global scope, where `await` can be used anywhere. In: one JSON object a line,
// {"token", "source"}. Out: for each cell a mark, what it prints and the value of its last expression (awaited if
// it is a promise), and another mark that says how it ended.
'use strict';
{
  const fs = require('fs');
  const util = require('util');
  const vm = require('vm');
  const repl = require('repl');
  const { PassThrough } = require('stream');
  const out = process.stdout.write.bind(process.stdout);
  process.stderr.write = out;
  let interrupt = null;
  const tell = (error) => out(util.inspect(error) + '\n');
  process.on('uncaughtException', tell);
  process.on('unhandledRejection', tell);
  process.on('SIGINT', () => interrupt && interrupt(new Error('interrupted')));
  // Node's own prompt knows how to await at the top of a cell and to keep what is declared there. It is made when a
  // cell first needs it, and only its evaluator is used.
  let prompt = null;
  let fail = null;
  const awaiting = (source, filename) => new Promise((resolve, reject) => {
    if (!prompt) {
      prompt = repl.start({
        input: new PassThrough(), output: new PassThrough().resume(), terminal: false, prompt: '',
        useGlobal: true, breakEvalOnSigint: true,
      });
      // What is thrown before the first await does not come back to the caller, but here.
      if (prompt._domain) prompt._domain.removeAllListeners('error').on('error', (error) => fail(error));
    }
    fail = reject;
    prompt.eval(source + '\n', prompt.context, filename, (error, value) => {
      // What could go on in another line is not whole.
      if (error) reject(error instanceof repl.Recoverable ? error.err : error);
      else resolve(value);
    });
  });
  const evaluate = (source, filename) => {
    let script;
    try {
      script = new vm.Script(source, { filename });
    } catch (error) {
      if (error instanceof SyntaxError && /\bawait\b/.test(source)) return awaiting(source, filename);
      throw error;
    }
    return script.runInThisContext({ breakOnSigint: true });
  };
  const run = async (line, number) => {
    const { token, source } = JSON.parse(line);
    const mark = (word) => out(`\x1e${token} ${word}\n`);
    mark('begin');
    try {
      const stop = new Promise((_, reject) => { interrupt = reject; });
      const value = await Promise.race([stop, evaluate(source, `<cell ${number}>`)]);
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
