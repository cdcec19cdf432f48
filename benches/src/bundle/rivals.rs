//! What platforms run tools of their users in without a sandbox: a process of Node for each call, or a runtime within
//! one process of Node that lives (`isolated-vm`, `vm2`).

use crate::rival::{find, quiet};
use crate::running::Running;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Stdio};

/// Names the directory below which packages of others are installed, each in one of its own.
const RIVALS: &str = "GLOVEBOX_BENCH_RIVALS";

/// Those within one process: name, package, and the function that makes one call.
pub(crate) const WITHIN: [(&str, &str, &str); 2] = [
    (
        "isolated-vm, an isolate for each call",
        "isolated-vm",
        "async (ivm, body, input) => {
          const isolate = new ivm.Isolate({ memoryLimit: 64 });
          try {
            const context = await isolate.createContext();
            const script = `(async () => JSON.stringify(await (${body})(JSON.parse(${JSON.stringify(input)}))))()`;
            return await context.eval(script, { promise: true, timeout: 10000 });
          } finally {
            isolate.dispose();
          }
        }",
    ),
    (
        "vm2, a NodeVM for each call",
        "vm2",
        "async ({ VM }, body, input) => {
          const vm = new VM({ timeout: 10000 });
          return await vm.run(`(async () => JSON.stringify(await (${body})(JSON.parse(${JSON.stringify(input)}))))()`);
        }",
    ),
];

/// The Node of this machine.
pub(crate) fn node() -> Result<PathBuf> {
    find("node")
}

/// One call in a process of its own.
pub(crate) fn process(node: &Path, code: &str, input: &Value) -> Result<Value> {
    const AROUND: &str = "const input = JSON.parse(process.argv.at(-1)); console.log(JSON.stringify(await tool(input)));";
    let text = code.replacen("export default", "const tool =", 1);
    let mut command = quiet(node);
    command
        .args(["--input-type=module", "--eval"])
        .arg(format!("{text}\n{AROUND}"))
        .arg(input.to_string())
        .stdout(Stdio::piped());
    let output = command.output()?;
    ensure!(output.status.success(), "{}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// A process of Node that makes calls, a line for each. Ended when dropped.
pub(crate) struct Living {
    _child: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Living {
    pub(crate) fn start(package: &str, driver: &str) -> Result<Self> {
        let dir = std::env::var_os(RIVALS).with_context(|| {
            format!("{RIVALS} does not say where `{package}` is; `cargo xtask bench` installs it")
        })?;
        let modules = Path::new(&dir)
            .join(package)
            .join("node_modules")
            .join(package);
        ensure!(modules.is_dir(), "`{package}` is not installed");
        let program = format!(
            "const made = require({});\nconst call = {driver};\n\
             require('readline').createInterface({{ input: process.stdin }}).on('line', async (line) => {{\n\
             \x20 const {{ body, input }} = JSON.parse(line);\n\
             \x20 try {{ console.log(await call(made, body, input)); }} catch (error) {{ console.log(JSON.stringify(String(error))); }}\n}});",
            json!(modules)
        );
        let mut command = quiet(&node()?);
        command
            // What isolated-vm asks for with Node 20.
            .args(["--no-node-snapshot", "--eval", &program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut living = Self {
            _child: Running(child),
            input: input.context("no standard input")?,
            output: BufReader::new(output.context("no standard output")?),
        };
        let told = living.call("export default (input) => input;", &json!(1));
        ensure!(
            matches!(&told, Ok(value) if *value == json!(1)),
            "`{package}` does not work here: {told:?}"
        );
        Ok(living)
    }

    pub(crate) fn call(&mut self, code: &str, input: &Value) -> Result<Value> {
        let body = code
            .trim_start_matches("export default")
            .trim()
            .trim_end_matches(';');
        let asked = json!({ "body": body, "input": input.to_string() });
        writeln!(self.input, "{asked}")?;
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "it has ended");
        Ok(serde_json::from_str(&line)?)
    }
}
