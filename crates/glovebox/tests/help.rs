//! Exact texts of `--help`: a newcomer learns the tool from them, so changes are reviewed.

use testkit::Home;

fn help(command: &str) -> String {
    let home = Home::new();
    let ran = home.line(&format!("{command} --help")).run().expect_code(0);
    assert!(ran.stderr.is_empty(), "{ran}");
    ran.out()
}

macro_rules! help_of {
    ($($name:ident: $command:literal,)+) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(stringify!($name), help($command));
        }
    )+};
}

help_of! {
    top: "",
    agent: "agent",
    sessions: "sessions",
    sessions_resume: "sessions resume",
    replay: "replay",
    init: "init",
    run: "run",
    start: "start",
    list: "list",
    exec: "exec",
    diff: "diff",
    pull: "pull",
    push: "push",
    attach: "attach",
    kill: "kill",
    checkpoint: "checkpoint",
    checkpoint_delete: "checkpoint delete",
    checkpoints: "checkpoints",
    restore: "restore",
    fork: "fork",
    logs: "logs",
    info: "info",
    audit: "audit",
    doctor: "doctor",
    demo: "demo",
    completions: "completions",
    config_explain: "config explain",
    config_trust: "config trust",
    config_trusted: "config trusted",
    config_untrust: "config untrust",
    tools: "tools",
    bundle_run: "bundle run",
    call: "call",
    why: "why",
    bundle: "bundle",
    bundle_check: "bundle check",
    bundle_dev: "bundle dev",
    bundle_call: "bundle call",
    bundle_show: "bundle show",
    mcp: "mcp",
    stop: "stop",
    prune: "prune",
    cache: "cache",
    cache_list: "cache list",
    cache_prune: "cache prune",
    stats: "stats",
    cp: "cp",
    rename: "rename",
    sessions_export: "sessions export",
    help_help: "help",
}

#[test]
fn aliases_lead_to_the_same_help() {
    for (alias, command) in [
        ("create", "start"),
        ("ls", "list"),
        ("console", "attach"),
        ("shell", "attach"),
        ("rm", "kill"),
    ] {
        assert_eq!(help(alias), help(command), "{alias}");
    }
}

#[test]
fn completions_that_are_made_once_name_every_visible_command() {
    let home = Home::new();
    for shell in ["elvish", "powershell"] {
        let script = home
            .line(&format!("completions {shell}"))
            .run()
            .expect_code(0)
            .out();
        for command in [
            "agent", "sessions", "replay", "init", "run", "start", "list", "exec", "attach",
            "stop", "kill", "cp", "logs", "info", "doctor", "demo",
        ] {
            assert!(script.contains(command), "{shell} misses {command}");
        }
    }
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let home = Home::new();
    let dir = home.root().join("man");
    std::fs::create_dir(&dir).unwrap();
    home.glovebox(["__man".as_ref(), dir.as_os_str()])
        .run()
        .expect_code(0);
    for page in ["glovebox.1", "glovebox-run.1", "glovebox-exec.1"] {
        let text = std::fs::read_to_string(dir.join(page)).unwrap();
        assert!(text.contains(".TH"), "{page}");
    }
}
