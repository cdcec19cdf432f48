//! Programs that draw on the terminal: a git pager, `fzf` and `vim`, whose streams are pipes, and a pane of `tmux`; each
//! first without Glovebox, then through `run` and `exec`.

use crate::screen::Terminal;
use std::time::Duration;
use testkit::{Person, has_program, skip_loudly, wait_until};

/// When keys are typed again.
const AGAIN: Duration = Duration::from_secs(4);

/// The beginnings of command lines: none, `run` and `exec` in the sandbox `box`.
fn ways(person: &Person) -> [String; 3] {
    let binary = person.binary().display().to_string();
    [
        "env".to_owned(),
        format!("'{binary}' run -q --apply never --"),
        format!("'{binary}' exec -q --stdin -e TERM box --"),
    ]
}

/// Runs a line of `sh` on a terminal. Keys are typed when the screen shows what they answer, and again until the next
/// thing shows, for a program may throw away what comes while it starts; what the line prints last must follow.
fn run(person: &Person, line: &str, answers: &[(&str, &str)], last: &str) {
    let mut terminal = Terminal::run_program(person, "sh", &["-c", line]);
    let shown = answers.iter().map(|(shown, _)| *shown).chain([last]);
    let keys = [""]
        .into_iter()
        .chain(answers.iter().map(|(_, keys)| *keys));
    for (keys, shown) in keys.zip(shown) {
        let is_shown = (0..10).any(|_| {
            terminal.type_keys(keys);
            wait_until(AGAIN, || terminal.text().contains(shown))
        });
        assert!(
            is_shown,
            "{line} does not show {shown}:\n{}",
            terminal.text()
        );
    }
    assert_eq!(terminal.end(), 0, "{line}");
}

fn each(program: &str, mut test: impl FnMut(&Person, &str)) {
    if !has_program(program) {
        skip_loudly(module_path!(), format!("needs {program}"));
        return;
    }
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        for way in ways(person) {
            test(person, &way);
        }
        let _ = person.line("kill -q box").run().expect_code(0);
    });
}

#[test]
fn git_pages_what_a_pager_inside_shows() {
    each("less", |person, way| {
        let repository = "git init -q . 2>/dev/null; git config user.name x; git config user.email x@x.example; \
                          for n in $(seq 60); do git commit -q --allow-empty -m \"commit-$n\"; done";
        let made = person.program("sh").args(["-c", repository]).status();
        assert!(made.unwrap().success());
        let pager = format!("{way} less -+F -+X");
        let line = format!(
            "export LESS=; git -c core.pager=\"{pager}\" log --format=%s; echo pager-$((1 + 1))"
        );
        run(
            person,
            &line,
            &[("commit-60", "G"), ("commit-1", "q")],
            "pager-2",
        );
    });
}

#[test]
fn fzf_chooses_from_a_pipe_by_keys_of_the_terminal() {
    each("fzf", |person, way| {
        let line =
            format!("x=$(printf 'apple\\nbanana\\ncherry\\n' | {way} fzf); echo \"chose-[$x]\"");
        run(
            person,
            &line,
            &[("cherry", "\x15ban"), ("1/3", "\r")],
            "chose-[banana]",
        );
    });
}

#[test]
fn vim_edits_what_a_pipe_brings() {
    each("vim", |person, way| {
        let line = format!("echo first-line | {way} vim -u NONE -N -; echo vim-$((1 + 1))");
        run(person, &line, &[("first-line", "\x1b:q!\r")], "vim-2");
    });
}

#[test]
fn command_in_a_pane_of_tmux_has_its_size_and_keys() {
    each("tmux", |person, way| {
        // A server that was ended answers at its socket for a moment.
        let dir = person.place().root().join(format!("tmux-{}", way.len()));
        std::fs::create_dir(&dir).unwrap();
        person.own(&dir);
        let tmux = |args: &[&str]| {
            let mut command = person.program("tmux");
            command.arg("-S").arg(dir.join("socket"));
            command.args(["-f", "/dev/null"]).args(args);
            // Without it tmux takes the shell of the account, which may let nobody in.
            command.env("TERM", "xterm").env("SHELL", "/bin/sh");
            let output = command.output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&said).into_owned()
        };
        let line = format!("{way} sh -c 'stty size; read a; echo got-$a; stty size; read b'");
        let size = ["-x", "70", "-y", "20"];
        let begun = tmux(&[&["new-session", "-d", "-s", "t"][..], &size, &[&line]].concat());
        let shows = |text: &str| {
            let pane = || tmux(&["capture-pane", "-p", "-t", "t"]);
            let is_shown = wait_until(Duration::from_secs(20), || pane().contains(text));
            assert!(is_shown, "{line} does not show {text}: {begun}{}", pane());
        };
        shows("20 70");
        tmux(&["resize-window", "-t", "t", "-x", "60", "-y", "18"]);
        tmux(&["send-keys", "-t", "t", "key", "Enter"]);
        shows("got-key");
        shows("18 60");
        tmux(&["kill-server"]);
    });
}
