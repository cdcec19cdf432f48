//! `bundle check` and `bundle show`: what a bundle declares, what is wrong with it, and who reads it.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::Home;

const GOOD: &str = "const { createLightfast, createAgent } = require('lightfast');
const { createTool } = require('lightfast/tool');
const { gateway } = require('@ai-sdk/gateway');
const { z } = require('zod');
const FACTOR = 2;
const double = createTool({
  description: 'Doubles', inputSchema: z.object({ x: z.number() }), execute: async ({ x }) => x * FACTOR,
});
throw new Error('the top level runs');
module.exports = createLightfast({ agents: { assistant: createAgent({
  name: 'assistant', system: 'You are helpful', model: gateway('gpt-4'), tools: { double },
}) } });
";

const BAD: &str = "import { createLightfast } from 'lightfast/client';
import { createAgent } from 'lightfast/agent';
export default createLightfast({ agents: { x: createAgent({
  name: 'x',
  system: Date.now() + '',
  model: process.env.PROD ? 'a' : 'b',
}) } });
";

fn file(home: &Home, name: &str, text: &str) -> String {
    let path = home.root().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_good_bundle_is_said_to_be_good_and_shown() {
    let home = Home::new();
    let path = file(&home, "good.js", GOOD);
    let out = home
        .line(&format!("bundle check {path}"))
        .run()
        .expect_code(0)
        .out();
    assert!(out.contains("1 agent, 1 tool, nothing wrong"), "{out}");
    let out = home
        .line(&format!("bundle show {path} --tool double"))
        .run()
        .expect_code(0)
        .out();
    for words in ["Doubles", "\"type\": \"number\"", "const FACTOR = 2;"] {
        assert!(out.contains(words), "{words}: {out}");
    }
    assert!(!out.contains("throw"), "{out}");
    let ran = home
        .line(&format!("bundle show {path} --tool triple"))
        .run()
        .expect_code(6);
    assert!(ran.err().contains("there are: double"), "{ran}");
}

#[test]
fn all_errors_come_at_once_with_exit_code_2() {
    let home = Home::new();
    let path = file(&home, "bad.js", BAD);
    let out = home
        .line(&format!("bundle check {path}"))
        .run()
        .expect_code(2)
        .out();
    for words in [
        "bad.js:5:11",
        "bad.js:6:10",
        "E_CONDITIONAL agents.x.model",
        "process.env.PROD ? 'a'",
        "hint:",
        "2 errors",
    ] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let out = home
        .line(&format!("bundle check {path} --json"))
        .run()
        .expect_code(2)
        .out();
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["success"], false);
    let errors = answer["data"]["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 2);
    assert_eq!(errors[1]["code"], "E_CONDITIONAL");
    assert_eq!(
        (&errors[1]["line"], &errors[1]["column"]),
        (&6.into(), &10.into())
    );
}

/// The process that reads a bundle, looked at from outside while it waits for the first byte.
#[test]
fn who_reads_a_bundle_can_do_nothing_else() {
    let mut child = Command::new(testkit::binary())
        .arg("__extract")
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let proc = Path::new("/proc").join(child.id().to_string());
    let status = || fs::read_to_string(proc.join("status")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !status().contains("Seccomp:\t2") && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let told = status();
    let limits = fs::read_to_string(proc.join("limits")).unwrap();
    let open = fs::read_dir(proc.join("fd")).unwrap().count();
    // Ends it, as the end of its input.
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(told.contains("Seccomp:\t2"), "{told}");
    assert!(told.contains("NoNewPrivs:\t1"), "{told}");
    assert_eq!(open, 3);
    for (name, soft) in [
        ("Max open files", "3"),
        ("Max file size", "0"),
        ("Max processes", "0"),
        ("Max core file size", "0"),
        ("Max cpu time", "10"),
        ("Max address space", "3221225472"),
    ] {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        let found = line[name.len()..].split_whitespace().next();
        assert_eq!(found, Some(soft), "{line}");
    }
}
