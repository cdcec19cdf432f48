//! Configuration for users: its sources, their precedence, and refusals.

use testkit::{Home, filters};

#[test]
fn explain_shows_each_value_and_where_it_came_from() {
    let home = Home::new();
    home.write(
        "home/.config/glovebox/glovebox.toml",
        "memory = \"2GiB\"\ncpus = 2\ngrants = [\"~/data:/data\"]\n",
    );
    home.write(
        "project/glovebox.toml",
        "memory = \"1GiB\"\nenv = [\"TOKEN=hush-hush\"]\nrequire = [\"memory\"]\n",
    );
    let ran = home
        .line("config explain --pids 7")
        .env("GLOVEBOX_DISK", "none")
        .run()
        .expect_code(0);
    assert!(!ran.out().contains("hush"), "{ran}");
    // The width of a column depends on the length of the temporary directory's path.
    let rows: Vec<String> = filters(&ran.out(), home.root())
        .lines()
        .map(|row| {
            row.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect::<Vec<_>>()
                .join(" | ")
        })
        .collect();
    insta::assert_snapshot!(rows.join("\n"));
}

#[test]
fn explain_as_json_is_the_same() {
    let home = Home::new();
    let ran = home
        .line("config explain --json")
        .env("GLOVEBOX_MEMORY", "1GiB")
        .run()
        .expect_code(0);
    let value: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(value["version"], 1);
    assert_eq!(value["success"], true);
    assert_eq!(value["data"]["settings"]["memory"][0]["value"], "1GiB");
    assert_eq!(
        value["data"]["settings"]["memory"][0]["from"],
        "$GLOVEBOX_MEMORY"
    );
    assert_eq!(value["data"]["settings"]["cpus"][0]["from"], "default");
}

#[test]
fn a_project_that_widens_is_refused_before_anything_starts() {
    let home = Home::new();
    let mut refused = Vec::new();
    for text in [
        "net = \"host\"",
        "backend = \"host\"",
        "carrier = \"sh\"",
        "env = [\"SECRET\"]",
        "grants = [\"/etc\"]",
    ] {
        home.write("project/glovebox.toml", text);
        let ran = home.line("run -- true").run().expect_code(125);
        refused.push(ran.failure(home.root()));
        let ran = home.line("start box").run().expect_code(3);
        assert!(ran.err().contains("--trust-config"), "{text}\n{ran}");
    }
    insta::assert_snapshot!(refused.join("\n"), @"
    error: [ROOT]/project/glovebox.toml:1: `net = host` opens your network, and a project may not do that by itself
    hint: read the file; if you trust it as it is, run `glovebox config trust` in the project, or pass `--trust-config` for this once
    error: [ROOT]/project/glovebox.toml:1: `backend = host` leaves the native sandbox, and a project may not do that by itself
    hint: read the file; if you trust it as it is, run `glovebox config trust` in the project, or pass `--trust-config` for this once
    error: [ROOT]/project/glovebox.toml:1: `carrier = sh` runs a command on your machine, and a project may not do that by itself
    hint: read the file; if you trust it as it is, run `glovebox config trust` in the project, or pass `--trust-config` for this once
    error: [ROOT]/project/glovebox.toml:1: `env = SECRET` passes on variables of your environment, and a project may not do that by itself
    hint: read the file; if you trust it as it is, run `glovebox config trust` in the project, or pass `--trust-config` for this once
    error: [ROOT]/project/glovebox.toml:1: `grants = /etc` shows further files of your machine, and a project may not do that by itself
    hint: read the file; if you trust it as it is, run `glovebox config trust` in the project, or pass `--trust-config` for this once
    ");
    let started = home.line("start box").run().expect_code(3);
    insta::assert_snapshot!(started.shown_err(home.root()), @"
    error: [ROOT]/project/glovebox.toml:1: `grants = /etc` shows further files of your machine, and a project may not do that by itself
    hint: read the file; if you trust it as it is, run `glovebox config trust` in the project, or pass `--trust-config` for this once
    ");
    // The user can look at a file before trusting it.
    let ran = home.line("config explain").run().expect_code(0);
    let first: Vec<String> = filters(&ran.out(), home.root())
        .lines()
        .take(2)
        .map(str::to_owned)
        .collect();
    insta::assert_snapshot!(first.join("\n"), @"
    [ROOT]/project/glovebox.toml: untrusted, BLAKE3 066ecf7b4e1f
      needs trust: [ROOT]/project/glovebox.toml:1: `grants = /etc` shows further files of your machine
    ");
}

#[test]
fn trust_in_directories_points_to_trust_in_contents() {
    let home = Home::new();
    home.write(
        "home/.config/glovebox/glovebox.toml",
        "trusted = [\"~/src\"]\n",
    );
    let ran = home.line("run -- true").run().expect_code(125);
    insta::assert_snapshot!(filters(&ran.err(), home.root()));
    let ran = home.line("--no-config config trust").run().expect_code(2);
    insta::assert_snapshot!(ran.failure(home.root()), @"
    error: there is no glovebox.toml in [ROOT]/project or above it
    hint: name the directory of a project that has one; `glovebox init` writes one
    ");
}

#[test]
fn a_typo_names_the_key_that_was_meant() {
    let home = Home::new();
    home.write("project/glovebox.toml", "# limits\n\nmemroy = \"1GiB\"\n");
    let ran = home.line("run -- true").run().expect_code(125);
    insta::assert_snapshot!(filters(&ran.err(), home.root()), @"
    error: [ROOT]/project/glovebox.toml:3: unknown key `memroy`
    hint: did you mean `memory`?
    ");
    home.line("config explain --no-config").run().expect_code(0);
}

#[test]
fn a_project_cannot_make_us_hang_or_act() {
    let home = Home::new();
    let path = home.project().join("glovebox.toml");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let ran = home.line("config explain").run().expect_code(2);
    insta::assert_snapshot!(ran.failure(home.root()), @"
    error: [ROOT]/project/glovebox.toml is not a regular file
    hint: remove it, or pass `--no-config`
    ");
    std::fs::remove_file(&path).unwrap();
    home.write("project/glovebox.toml", "\"\\u001b[2Jx\" = 1\n");
    let ran = home.line("config explain").run().expect_code(2);
    assert!(!ran.stderr.contains(&0x1b), "{ran}");
}

#[test]
fn files_that_were_asked_for_must_exist() {
    let home = Home::new();
    let ran = home
        .line("--config missing.toml config explain")
        .run()
        .expect_code(2);
    insta::assert_snapshot!(filters(&ran.err(), home.root()), @"
    error: there is no configuration file [ROOT]/project/missing.toml
    hint: correct the path, or leave `--config` and $GLOVEBOX_CONFIG out
    ");
}
