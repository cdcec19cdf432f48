//! Tests of a project's own file: permitted values of each key, and values that need consent.

use super::Settings;
use super::file::FILE_NAME;
use super::keys::{self, keys};
use super::project_rule::ProjectRule;
use super::resolve::tests::Tree;
use crate::SettingsError;
use std::fs;

/// Returns settings with the project's file, or the error where commands run.
fn checked(
    text: &str,
    trust_config: bool,
    is_outside_native: bool,
) -> Result<Settings, SettingsError> {
    let (settings, _) = Tree::new("", text).resolve(&[], trust_config)?;
    settings.check_project(is_outside_native)?;
    Ok(settings)
}

/// For each key: values that an untrusted project may set, and values that need consent.
const SAMPLES: &[(&str, &[&str], &[&str])] = &[
    ("backend", &["'native'"], &["'host'", "'command'"]),
    ("carrier", &[], &["'ssh box'", "[]"]),
    ("start_timeout", &["'10s'", "'30s'"], &["'31s'"]),
    ("guest_dir", &[], &["'/opt'"]),
    ("rootfs", &["'host'"], &["'host-all'", "'dir:root'"]),
    ("net", &["'none'"], &["'egress'", "'host'"]),
    ("allow", &[], &["['npm']", "['*.example.com']"]),
    ("deny", &["['example.com']"], &[]),
    ("secrets", &[], &["['T=env:HOME@example.com']"]),
    ("grants", &[], &["['/etc']"]),
    ("toolchains", &["false", "true"], &[]),
    ("cache", &["false"], &["true"]),
    ("env", &[], &["['SECRET']"]),
    (
        "workspace",
        &["'none'", "'read-only'", "'overlay'"],
        &["'live'"],
    ),
    ("git", &["'head'"], &["'full'"]),
    ("sync.enabled", &["false", "true"], &[]),
    (
        "sync.push.exclude",
        &["['*.mp4']"],
        &["['!.env']", "['a', '!b']"],
    ),
    ("sync.push.include", &[], &["['.env']"]),
    ("sync.pull.exclude", &["['*.tmp']"], &["['!x']"]),
    ("sync.pull.include", &[], &["['dist/']"]),
    ("sync.on_success", &["false"], &["true"]),
    (
        "mcp",
        &[],
        &[
            "{ hub = { command = 'npx' } }",
            "{ hub = { url = 'https://a/' } }",
        ],
    ),
    (
        "toolsets",
        &["{ docs = ['Read', 'Edit'] }"],
        &["{ docs = ['Spawn'] }"],
    ),
    ("toolset", &["'plan'", "'safe'"], &["'full'"]),
    (
        "workflow",
        &["[{ name = 'w', phase = [{ name = 'plan', net = 'host' }] }]"],
        &[],
    ),
    ("policy.allow", &[], &["['Bash']"]),
    ("policy.ask", &["['Bash']"], &[]),
    ("policy.deny", &["['Bash']"], &[]),
    ("mode", &["'sandbox'", "'auto'"], &["'local'"]),
    ("agent.model", &[], &["'openai/gpt-5'", "'replay:x'"]),
    ("agent.price", &[], &["'3/15'"]),
    ("agent.window", &[], &["'32000'"]),
    ("agent.instructions", &[], &["false", "true"]),
    ("agent.max_turns", &["7"], &["101", "'none'"]),
    ("agent.max_time", &["'10m'"], &["'2h'"]),
    ("agent.max_tokens", &["1000"], &["'none'"]),
    ("agent.max_cost", &["2.5"], &[]),
    ("memory", &["'64MiB'"], &["'none'", "'9000TiB'"]),
    ("cpus", &["0.5", "2", "'none'"], &[]),
    ("cpu_time", &["'1s'", "'10m'", "'none'"], &[]),
    ("pids", &["64"], &["'none'"]),
    ("disk", &["'1MiB'"], &["'20GiB'"]),
    ("file_size", &["'1MiB'", "'none'"], &[]),
    ("open_files", &["256", "16384", "'none'"], &["16385"]),
    ("net_bytes", &["'1MiB'", "'none'"], &[]),
    ("net_connections", &["8", "'none'"], &[]),
    ("net_rate", &["'1MiB'", "'none'"], &[]),
    ("timeout", &["'1h'", "'none'"], &[]),
    ("require", &["['memory']"], &[]),
    ("layers", &["'memory'", "'disk'"], &[]),
    ("ids", &["'single'", "'auto'"], &["'range'"]),
    ("proc", &["'none'", "'masked'"], &[]),
    ("nested", &["false"], &["true"]),
    ("max_sandboxes", &[], &["1"]),
    ("state", &[], &["'/tmp/x'"]),
    ("serve.sources", &[], &["{ app = '/srv/app' }"]),
    ("serve.log_format", &[], &["'json'"]),
    ("serve.log_level", &[], &["'error'"]),
    ("serve.max_memory", &[], &["'1GiB'"]),
    ("serve.max_memory_per_user", &[], &["'1GiB'"]),
    ("serve.max_cpus", &[], &["'1'"]),
    ("serve.max_cpus_per_user", &[], &["'1'"]),
    ("serve.max_disk", &[], &["'1GiB'"]),
    ("serve.max_disk_per_user", &[], &["'1GiB'"]),
];

#[test]
fn every_key_has_a_decision_about_projects() {
    let names: Vec<_> = keys().map(|key| key.name).collect();
    let sampled: Vec<_> = SAMPLES.iter().map(|(name, ..)| *name).collect();
    assert_eq!(
        sampled, names,
        "a key without samples of what a project may say"
    );
    for (name, harmless, wide) in SAMPLES {
        assert!(!harmless.is_empty() || !wide.is_empty(), "{name}");
        for value in *harmless {
            let text = format!("{name} = {value}");
            for is_outside_native in [false, true] {
                checked(&text, false, is_outside_native)
                    .unwrap_or_else(|error| panic!("{text}: {error:?}"));
            }
        }
        let key = keys::find(name).unwrap();
        let is_users_alone = matches!(key.project, ProjectRule::UserOnly);
        for value in *wide {
            let text = format!("{name} = {value}");
            let error = checked(&text, false, false).unwrap_err();
            assert!(
                matches!(error, SettingsError::Refused { .. }),
                "{text}: {error:?}"
            );
            assert!(error.message().contains("glovebox.toml:1: "), "{error:?}");
            assert!(error.message().contains(name), "{error:?}");
            let consented = checked(&text, true, true);
            assert_eq!(consented.is_err(), is_users_alone, "{text}: {consented:?}");
            if !is_users_alone {
                assert!(
                    error
                        .remedy()
                        .unwrap()
                        .to_string()
                        .contains("glovebox config trust")
                );
            }
        }
    }
}

#[test]
fn a_project_is_compared_with_what_the_user_gives() {
    for (user, text, is_allowed) in [
        ("memory = '2GiB'", "memory = '1GiB'", true),
        ("memory = '128MiB'", "memory = '256MiB'", false),
        ("mode = 'sandbox'", "mode = 'auto'", false),
        ("mode = 'local'", "mode = 'local'", true),
        ("backend = 'host'", "workspace = 'live'", false),
        ("sync.enabled = false", "workspace = 'overlay'", false),
        ("workspace = 'read-only'", "workspace = 'copy'", false),
        ("toolchains = false", "toolchains = true", false),
        ("rootfs = 'dir:/opt/root'", "rootfs = 'host'", false),
        ("rootfs = 'host-all'", "rootfs = 'host'", true),
        ("layers = 'memory'", "layers = 'disk'", false),
        ("proc = 'none'", "proc = 'masked'", false),
        ("timeout = '5m'", "timeout = '6m'", false),
        ("timeout = '5m'", "timeout = '4m'", true),
        ("toolset = 'research'", "toolset = 'plan'", false),
        ("agent.max_cost = 2", "agent.max_cost = 3", false),
        ("file_size = '1MiB'", "file_size = 'none'", false),
        ("open_files = 256", "open_files = 512", false),
        ("open_files = 256", "open_files = 'none'", false),
        ("open_files = 20000", "open_files = 'none'", true),
        ("cpu_time = '1m'", "cpu_time = '2m'", false),
        ("net_bytes = '1MiB'", "net_bytes = '2MiB'", false),
        ("net_bytes = '2MiB'", "net_bytes = '1MiB'", true),
        ("net_connections = 8", "net_connections = 'none'", false),
        ("net_rate = '1MiB'", "net_rate = '2MiB'", false),
        ("ids = 'range'", "ids = 'range'", true),
        ("sync.on_success = true", "sync.on_success = true", true),
    ] {
        let (settings, _) = Tree::new(user, text).resolve(&[], false).unwrap();
        let checked = settings.check_project(false);
        assert_eq!(checked.is_ok(), is_allowed, "{user} / {text}: {checked:?}");
    }
}

#[test]
fn variables_of_a_project_wait_outside_a_native_sandbox_and_loaders_everywhere() {
    checked("env = ['A=b']", false, false).unwrap();
    let error = checked("env = ['A=hush']", false, true).unwrap_err();
    assert!(error.message().contains("`env = A=...`"), "{error:?}");
    assert!(!error.message().contains("hush"), "{error:?}");
    checked("env = ['A=b']", true, true).unwrap();
    for text in [
        "env = ['LD_PRELOAD=./x.so']",
        "env = ['A=b', 'path=./bin']",
        "env = ['PYTHONPATH']",
        "env = ['A B=c']",
        "[mcp.hub]\ncommand = 'x'\nenv = ['NODE_OPTIONS=--require ./x']",
    ] {
        for trust_config in [false, true] {
            let error = checked(text, trust_config, false).unwrap_err();
            assert!(
                matches!(error, SettingsError::Refused { .. }),
                "{text}: {error:?}"
            );
            assert!(error.message().contains("trusted or not"), "{error:?}");
        }
        // The user's own file may set it.
        Tree::new(text, "").resolve(&[], false).unwrap();
    }
}

#[test]
fn trust_in_a_directory_whatever_its_files_say_is_gone() {
    let error = Tree::new("trusted = ['~/src']", "")
        .resolve(&[], false)
        .unwrap_err();
    let remedy = error.remedy().unwrap().to_string();
    assert!(remedy.contains("glovebox config trust"), "{remedy}");
}

#[test]
fn the_digest_is_of_the_bytes_that_were_read() {
    let tree = Tree::new("", "net = 'host'");
    let file = |tree: &Tree| tree.resolve(&[], false).unwrap().0.project_file.unwrap();
    let first = file(&tree);
    assert_eq!(
        first.digest,
        blake3::hash(b"net = 'host'").to_hex().to_string()
    );
    assert_eq!(
        first.dir,
        tree.dir.path().join("project").canonicalize().unwrap()
    );
    fs::write(
        tree.dir.path().join("project").join(FILE_NAME),
        "net = 'host' ",
    )
    .unwrap();
    assert_ne!(file(&tree).digest, first.digest);
    assert!(file(&Tree::new("", "pids = 1")).demands.is_empty());
}
