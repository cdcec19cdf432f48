//! Tests of the table: each row is complete, matches the code, and is in the reference.

use super::{DefaultValue, Key, keys};
use crate::raw::{PathContext, RawValue};
use crate::{AgentFlags, Origin, SandboxFlags, ServeFlags, Settings};
use std::fmt::Write as _;
use std::path::Path;

#[test]
fn every_key_can_be_set_and_shown() {
    let place = PathContext {
        base: Path::new("/base"),
        home: Some(Path::new("/home/u")),
    };
    let samples = [
        ("backend", "host"),
        ("carrier", "ssh box"),
        ("start_timeout", "90s"),
        ("guest_dir", "/opt/glovebox"),
        ("rootfs", "dir:root"),
        ("net", "host"),
        ("allow", "npm"),
        ("deny", "*.example.com:22"),
        (
            "secrets",
            "TOKEN=env:GH_TOKEN@api.example.com,*.example.com:8443",
        ),
        ("grants", "~/data:/data"),
        ("toolchains", "false"),
        ("cache", "true"),
        ("env", "A=b"),
        ("workspace", "copy"),
        ("git", "full"),
        ("sync.enabled", "false"),
        ("sync.push.exclude", "*.mp4"),
        ("sync.push.include", ".env.example"),
        ("sync.pull.exclude", "*.{log,tmp}"),
        ("sync.pull.include", "dist/"),
        ("sync.on_success", "true"),
        ("mcp", "hub; npx"),
        ("toolsets", "docs; Read"),
        ("toolset", "plan"),
        ("workflow", "change; phase=plan"),
        ("policy.allow", "Bash(git status)"),
        ("policy.ask", "Bash"),
        ("policy.deny", "Read(**/.env)"),
        ("mode", "sandbox"),
        ("agent.model", "openai/gpt-5"),
        ("agent.price", "3/15"),
        ("agent.window", "32000"),
        ("agent.instructions", "false"),
        ("agent.max_turns", "7"),
        ("agent.max_time", "10m"),
        ("agent.max_tokens", "1000"),
        ("agent.max_cost", "2.5"),
        ("memory", "1GiB"),
        ("cpus", "2"),
        ("cpu_time", "10m"),
        ("pids", "64"),
        ("disk", "none"),
        ("file_size", "1MiB"),
        ("open_files", "512"),
        ("net_bytes", "1GiB"),
        ("net_connections", "16"),
        ("net_rate", "64KiB"),
        ("timeout", "1h"),
        ("require", "memory"),
        ("layers", "memory"),
        ("ids", "single"),
        ("proc", "pids"),
        ("nested", "true"),
        ("max_sandboxes", "5"),
        ("state", "state"),
        ("serve.sources", "app; data"),
        ("serve.log_format", "json"),
        ("serve.log_level", "debug"),
        ("serve.max_memory", "8GiB"),
        ("serve.max_memory_per_user", "8GiB"),
        ("serve.max_cpus", "4"),
        ("serve.max_cpus_per_user", "4"),
        ("serve.max_disk", "20GiB"),
        ("serve.max_disk_per_user", "20GiB"),
    ];
    assert_eq!(
        samples.map(|(name, _)| name).as_slice(),
        keys().map(|key| key.name).collect::<Vec<_>>()
    );
    let origin = Origin::Variable("X");
    for (name, text) in samples {
        let mut settings = Settings::default();
        let raw = match text.split_once("; ") {
            Some((one, two)) if name == "mcp" => {
                let command = ("command".to_owned(), RawValue::One(two.to_owned()));
                RawValue::Table(one.to_owned(), vec![command])
            }
            Some((one, two)) => RawValue::Many(vec![one.to_owned(), two.to_owned()]),
            None => RawValue::One(text.to_owned()),
        };
        settings.apply(name, &raw, place, &origin).unwrap();
        let shown = settings.shown(name);
        assert_eq!(shown.len(), 1, "{name}");
        assert_eq!(shown[0].1, &origin, "{name}");
        assert_ne!(settings, Settings::default(), "{name}");
    }
}

#[test]
fn values_of_variables_are_not_shown() {
    let place = PathContext {
        base: Path::new("/"),
        home: None,
    };
    let mut settings = Settings::default();
    settings
        .apply(
            "env",
            &RawValue::One("TOKEN=hush".to_owned()),
            place,
            &Origin::Default,
        )
        .unwrap();
    assert_eq!(settings.shown("env")[0].0, "TOKEN=...");
}

/// Returns the base of relative paths in values.
fn somewhere() -> PathContext<'static> {
    PathContext {
        base: Path::new("/base"),
        home: None,
    }
}

#[test]
fn the_default_of_a_row_is_the_default_of_the_setting() {
    let settings = Settings::default();
    for key in keys() {
        let shown = settings.shown(key.name);
        match key.default {
            DefaultValue::Text(text) | DefaultValue::Plain(text) => {
                let mut set = Settings::default();
                set.apply(
                    key.name,
                    &RawValue::One(text.to_owned()),
                    somewhere(),
                    &Origin::Default,
                )
                .unwrap();
                assert_eq!(set.shown(key.name), shown, "{}", key.name);
                assert!(!shown.is_empty(), "{}", key.name);
            }
            DefaultValue::EmptyList => assert_eq!(shown, [], "{}", key.name),
            DefaultValue::Words(words) => assert!(!words.is_empty(), "{}", key.name),
        }
    }
}

#[test]
fn names_variables_and_meanings_are_those_of_one_row() {
    let mut names = std::collections::BTreeSet::new();
    for key in keys() {
        assert!(names.insert(key.name), "{} twice", key.name);
        assert!(!key.meaning.is_empty(), "{}", key.name);
        if let Some(variable) = key.variable {
            assert!(variable.starts_with("GLOVEBOX_"), "{variable}");
            assert!(names.insert(variable), "{variable} twice");
        }
    }
}

/// Returns true if a row names a flag, of any command.
fn names_flag(key: &Key, flag: &str) -> bool {
    key.flags
        .iter()
        .any(|named| named.rsplit(' ').next() == Some(flag))
}

#[test]
fn a_flag_that_sets_a_key_stands_in_its_row() {
    let mut settings = Settings::default();
    settings.lay_flags(&every_sandbox_flag());
    settings.lay_agent_flags(&every_agent_flag());
    settings.lay_no_instructions(true);
    settings.lay_serve_flags(&every_serve_flag());
    let mut set = Vec::new();
    for key in keys() {
        for (_, origin) in settings.shown(key.name) {
            if let Origin::Flag(flag) = origin {
                assert!(names_flag(key, flag), "{} lacks --{flag}", key.name);
                set.push(key.name);
            }
        }
    }
    // Keys of commands that read their flags themselves.
    let elsewhere = [
        "sync.pull.exclude",
        "sync.pull.include",
        "sync.on_success",
        "toolset",
        "mode",
        "serve.sources",
    ];
    for key in keys().filter(|key| !key.flags.is_empty()) {
        assert!(
            set.contains(&key.name) || elsewhere.contains(&key.name),
            "no flag sets {}",
            key.name
        );
    }
}

fn every_sandbox_flag() -> SandboxFlags {
    use crate::values;
    SandboxFlags {
        backend: Some(values::parse_backend("host").unwrap()),
        carrier: Some("ssh box".parse().unwrap()),
        rootfs: Some(values::parse_rootfs("host-all").unwrap()),
        net: Some(values::parse_net("host").unwrap()),
        allow: vec!["npm".to_owned()],
        deny: vec!["npm".to_owned()],
        secrets: vec!["T=env:T@a.example.com".parse().unwrap()],
        grants: vec!["/data".parse().unwrap()],
        no_toolchains: true,
        cache: true,
        workspace: Some(values::parse_workspace("copy").unwrap()),
        git: Some(values::parse_git("full").unwrap()),
        exclude: vec!["a".to_owned()],
        include: vec!["a".to_owned()],
        env: vec![values::EnvArg::parse(std::ffi::OsStr::new("A=b")).unwrap()],
        start_timeout: Some("90s".parse().unwrap()),
        guest_dir: Some("/opt/glovebox".into()),
        // The built-in backends declare no options.
        backend_options: Vec::new(),
        limits: crate::limit_keys()
            .map(|(kind, _)| (kind, Some(7)))
            .collect(),
        timeout: Some("1h".parse().unwrap()),
        require: vec![values::parse_limit("memory").unwrap()],
        nested: true,
        layers: Some(values::parse_layers("memory").unwrap()),
        ids: Some(values::parse_ids("single").unwrap()),
        proc: Some(values::parse_proc("pids").unwrap()),
    }
}

fn every_serve_flag() -> ServeFlags {
    ServeFlags {
        log_format: Some("json".parse().unwrap()),
        log_level: Some("debug".parse().unwrap()),
        max_memory: Some("8GiB".parse().unwrap()),
        max_memory_per_user: Some("8GiB".parse().unwrap()),
        max_cpus: Some("4".parse().unwrap()),
        max_cpus_per_user: Some("4".parse().unwrap()),
        max_disk: Some("20GiB".parse().unwrap()),
        max_disk_per_user: Some("20GiB".parse().unwrap()),
    }
}

fn every_agent_flag() -> AgentFlags {
    AgentFlags {
        model: Some("openai/gpt-5".to_owned()),
        window: Some("32000".parse().unwrap()),
        max_turns: Some("7".parse().unwrap()),
        max_time: Some("1m".parse().unwrap()),
        max_tokens: Some("7".parse().unwrap()),
        max_cost: Some("7".parse().unwrap()),
        price: Some(glovebox_agent::Price::parse("3/15").unwrap()),
    }
}

const BEGIN: &str = "<!-- settings -->\n";
const END: &str = "<!-- end of settings -->\n";

/// Returns the table of `docs/reference/configuration.md`.
fn reference() -> String {
    let mut text = String::from(
        "\n| key | variable | flag | default | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for key in keys() {
        let variable = key
            .variable
            .map_or_else(String::new, |name| format!("`{name}`"));
        let flags: Vec<String> = key
            .flags
            .iter()
            .map(|flag| match flag.rsplit_once(' ') {
                Some((command, flag)) => format!("`{command} --{flag}`"),
                None => format!("`--{flag}`"),
            })
            .collect();
        let default = match key.default {
            DefaultValue::Text(text) => format!("`\"{text}\"`"),
            DefaultValue::Plain(text) => format!("`{text}`"),
            DefaultValue::EmptyList => "`[]`".to_owned(),
            DefaultValue::Words(words) => words.to_owned(),
        };
        let row = [
            format!("`{}`", key.name),
            variable,
            flags.join(", "),
            default,
            key.meaning.to_owned(),
        ];
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    let phases: Vec<String> = keys()
        .filter(|key| key.is_for_phases)
        .map(|key| format!("`{}`", key.name))
        .collect();
    let _ = write!(
        text,
        "\nA phase of a workflow may set {} for its own sandbox.\n\n",
        phases.join(", ")
    );
    text
}

#[test]
fn the_reference_has_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let expected = [before, BEGIN, &reference(), END, after].concat();
    if std::env::var_os("GLOVEBOX_TEST_BLESS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        expected,
        "run this test with GLOVEBOX_TEST_BLESS=1 to write the table anew"
    );
}
