//! Help while typing: completions that know what there is, and explanations by name.

use std::process::Command;
use testkit::{Person, has_program};

/// What bash offers for `line`, as its own completion would ask for it.
fn offered(person: &Person, line: &str) -> Vec<String> {
    let script = r#"
        source <("$1" completions bash)
        read -r -a COMP_WORDS <<< "$2"
        [[ $2 == *' ' ]] && COMP_WORDS+=('')
        COMP_WORDS[0]=$1
        COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
        compopt() { :; }
        _glovebox
        printf '%s\n' "${COMPREPLY[@]}""#;
    let mut bash: Command = person.program("bash");
    bash.args(["-c", script, "bash"])
        .arg(person.binary())
        .arg(line);
    let output = bash.output().unwrap();
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn bash_completes_what_there_is_and_nothing_hidden() {
    if !has_program("bash") {
        testkit::skip!("needs bash");
    }
    Person::each(|person| {
        // A question leaves nothing behind, not even a state directory.
        person.place().empty_state();
        assert!(offered(person, "glovebox exec ").is_empty());
        assert_eq!(
            std::fs::read_dir(person.place().state()).unwrap().count(),
            0
        );

        let _ = person.line("start -q alpha").run().expect_code(0);
        let _ = person
            .line("fork -q --no-start alpha beta")
            .run()
            .expect_code(0);
        let commands = offered(person, "glovebox ");
        for command in ["run", "logs", "help", "checkpoint"] {
            assert!(commands.iter().any(|word| word == command), "{commands:?}");
        }
        assert!(
            !commands.iter().any(|word| word.starts_with('_')),
            "{commands:?}"
        );
        for (line, words) in [
            ("glovebox exec ", &["alpha", "beta"][..]),
            ("glovebox -q kill alpha b", &["beta"]),
            ("glovebox start ", &["beta"]),
            ("glovebox restore alpha v", &["v1"]),
            ("glovebox run --net ", &["none", "egress", "host"]),
            ("glovebox run --require me", &["memory"]),
            ("glovebox logs --foll", &["--follow"]),
            ("glovebox help config e", &["explain"]),
        ] {
            assert_eq!(offered(person, line), words, "{line}");
        }
        let files = offered(person, "glovebox run -- cat /etc/host");
        assert!(
            files
                .iter()
                .any(|file| file == "/etc/hosts" || file == "/etc/hostname"),
            "{files:?}"
        );
        let _ = person.line("kill --all -q").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn no_shell_is_told_of_hidden_commands() {
    let person = Person::myself();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = person
            .line(&format!("completions {shell}"))
            .run()
            .expect_code(0)
            .out();
        for hidden in ["__supervise", "__commit", "__extract", "__man"] {
            assert!(!script.contains(hidden), "{shell} names {hidden}");
        }
    }
    let pages = person.place().root().join("pages");
    std::fs::create_dir(&pages).unwrap();
    let _ = person
        .glovebox(["__man".as_ref(), pages.as_os_str()])
        .run()
        .expect_code(0);
    for page in std::fs::read_dir(&pages).unwrap().flatten() {
        let name = page.file_name().into_string().unwrap();
        assert!(!name.contains("__"), "{name}");
        let text = std::fs::read_to_string(page.path()).unwrap();
        assert!(
            !text.contains("__supervise") && !text.contains("\\_\\_supervise"),
            "{name}"
        );
    }
    assert!(pages.join("glovebox-run.1").is_file());
}

#[test]
fn help_explains_a_command_by_its_name() {
    let person = Person::myself();
    for (by_name, by_flag) in [
        ("help", "--help"),
        ("help run", "run --help"),
        ("help config trust", "config trust --help"),
        ("help ls", "list --help"),
    ] {
        let ran = person.line(by_name).run().expect_code(0);
        assert_eq!(
            ran.out(),
            person.line(by_flag).run().expect_code(0).out(),
            "{by_name}"
        );
        assert!(ran.stderr.is_empty(), "{ran}");
    }
    let ran = person.line("help strat").run().expect_code(2);
    assert!(
        ran.err().contains("there is no command `strat`") && ran.err().contains("`start`"),
        "{ran}"
    );
}
