//! Foreign clients and servers that the tests use. Each is installed in its own directory below the
//! target directory.

use crate::step::{has_program, say, target_dir};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Official Python SDK of MCP.
const PYTHON: &str = "mcp==2.3.0";
/// Most common HTTP client of Python programs, with its dependencies.
const REQUESTS: &str = "requests==2.34.2";
/// Tester of HTTP APIs by their OpenAPI description, and its request generator. Both are pinned, so
/// that the requests are the same everywhere.
const SCHEMATHESIS: &str = "schemathesis==4.32.5 hypothesis==6.170.17";
/// Python classes that decode OpenTelemetry traces, and the library that generated them.
const OTLP: &str = "opentelemetry-proto==1.45.2 protobuf==7.36.2";
/// Official MCP inspector. Later versions need a newer Node than distributions have.
const NODE: &str = "@modelcontextprotocol/inspector@0.17.5";
/// Official MCP conformance suite. Later versions need a newer Node than distributions have.
const CONFORMANCE: &str = "@modelcontextprotocol/conformance@0.1.13";
/// AI SDK, whose chat protocol the server speaks, with its parsers of the providers' formats. Later
/// versions need a newer Node than distributions have.
const AI_SDK: &str = "ai@6.0.325 @ai-sdk/openai@3.0.141 @ai-sdk/openai-compatible@2.0.92 \
    @ai-sdk/anthropic@3.0.140 @ai-sdk/google@3.0.141";
/// Official Python clients of the model providers.
const MODELS: &str = "openai==3.57.0 anthropic==2.14.0";
/// Python client of AIO Sandbox, with the packages that it imports. Without its other dependencies,
/// one of which is a cloud SDK of 600 MB.
const AGENT_SANDBOX: &str = "--no-deps agent-sandbox==0.0.30 annotated-types==0.8.0 \
    anyio==4.16.0 certifi==2026.10.19.post1 h11==0.16.0 httpcore==1.0.9 httpx==0.28.1 idna==3.20 \
    pydantic==2.14.4 pydantic_core==2.50.5 typing_extensions==4.16.0 typing-inspection==0.4.5";
/// Python client of Sprites, for the server with the same contract.
const SPRITES_PY: &str = "sprites-py==0.7.2";
/// JavaScript client of Sprites, with the Node that it needs.
const SPRITES_JS: &str = "node@24.21.0 @fly/sprites@0.1.0";
/// Bundlers, zod, and libraries that bundles import, for the corpus of bundles. Later versions of
/// tsup need a newer Node.
const BUNDLERS: &str = "esbuild@0.28.2 tsup@8.5.1 rollup@4.68.8 @rollup/plugin-node-resolve@16.0.3 terser@5.51.4 \
    typescript@5.9.3 zod@4.6.7 zod-v3@npm:zod@3.25.76 zod-to-json-schema@3.25.2 ai@6.0.325 @ai-sdk/openai@3.0.1";
/// Agents of other vendors that use MCP servers.
const HOSTS: &str = "@anthropic-ai/claude-code@2.1.197 @openai/codex@0.169.0 @google/gemini-cli@0.61.0 opencode-ai@1.18.33";

/// JavaScript runtimes within one process, for comparison in benches. Each is installed separately,
/// because one is compiled on this machine and may fail. Later versions of isolated-vm need a newer
/// Node.
const RIVALS: [(&str, &str); 2] = [("isolated-vm", "isolated-vm@5.0.4"), ("vm2", "vm2@3.12.2")];

/// Returns the directory of all clients.
pub(crate) fn dir() -> PathBuf {
    target_dir().join("clients")
}

/// Installs missing clients, and prints those that cannot be installed. Tests that need one are
/// then skipped with a message.
pub(crate) fn install_missing() {
    for (name, packages) in [
        ("python", PYTHON),
        ("models", MODELS),
        ("schemathesis", SCHEMATHESIS),
        ("otlp", OTLP),
        ("sprites-py", SPRITES_PY),
        ("agent-sandbox", AGENT_SANDBOX),
    ] {
        install(name, packages, |dir| python_environment(dir, packages));
    }
    install("requests", REQUESTS, |dir| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"])
            .args(["install", "--upgrade", "--target"])
            .arg(dir)
            .arg(REQUESTS);
        vec![pip]
    });
    if has_program("npm") {
        for (name, packages) in [
            ("node", NODE),
            ("conformance", CONFORMANCE),
            ("ai", AI_SDK),
            ("bundlers", BUNDLERS),
            ("hosts", HOSTS),
            ("sprites-js", SPRITES_JS),
        ] {
            install(name, packages, |dir| vec![npm(dir, packages)]);
        }
    }
}

/// Returns the directory in which [`install_rivals`] installs.
pub(crate) fn rivals() -> PathBuf {
    dir().join("rivals")
}

/// Installs the runtimes that benches compare with, as [`install_missing`] does.
pub(crate) fn install_rivals() {
    if has_program("npm") {
        for (name, package) in RIVALS {
            install(&format!("rivals/{name}"), package, |dir| {
                let mut npm = npm(dir, package);
                // Native modules need the headers of Node. Without this setting npm would download
                // them.
                if let Some(root) = node_with_headers() {
                    npm.env("npm_config_nodedir", root);
                }
                vec![npm]
            });
        }
    }
}

/// Returns the installation directory of Node. `None` if its headers are missing there.
fn node_with_headers() -> Option<PathBuf> {
    let said = Command::new("node")
        .args(["-p", "process.execPath"])
        .output()
        .ok()?;
    let program = PathBuf::from(String::from_utf8(said.stdout).ok()?.trim());
    let root = program.parent()?.parent()?;
    root.join("include/node/node_version.h")
        .exists()
        .then(|| root.to_owned())
}

/// Returns commands that make a Python environment with these packages.
fn python_environment(dir: &Path, packages: &str) -> Vec<Command> {
    let mut venv = Command::new("python3");
    // Without its own pip: distributions put the files that it needs into another package.
    venv.args(["-m", "venv", "--clear", "--without-pip"])
        .arg(dir);
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "--python",
    ])
    .arg(dir.join("bin/python3"))
    .arg("install")
    .args(packages.split_ascii_whitespace());
    vec![venv, pip]
}

fn npm(dir: &Path, packages: &str) -> Command {
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
        .arg(dir)
        .args(packages.split_ascii_whitespace());
    npm
}

fn install(name: &str, version: &str, commands: impl Fn(&Path) -> Vec<Command>) {
    let dir = dir().join(name);
    let mark = dir.join("installed");
    if fs::read_to_string(&mark).is_ok_and(|found| found == version) {
        return;
    }
    say(&format!("==> install {version} in {}", dir.display()));
    let is_made = fs::create_dir_all(&dir).is_ok()
        && commands(&dir)
            .iter_mut()
            .all(|command| command.status().is_ok_and(|status| status.success()));
    if !is_made || fs::write(&mark, version).is_err() {
        say(&format!(
            "{version} cannot be installed; what needs it is skipped"
        ));
    }
}
