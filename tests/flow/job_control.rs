//! Terminals beside pipes, and Ctrl-Z, each first without Glovebox: what works there works the same with it.

use crate::screen::Terminal;
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::LocalModes;
use std::time::Duration;
use testkit::{Person, Process, has_program, marker, wait_until};

/// The beginnings of command lines: none, `run` and `exec` in the sandbox `box`.
fn prefixes(person: &Person) -> [String; 3] {
    let binary = person.binary().display().to_string();
    [
        "env".to_owned(),
        format!("'{binary}' run -q --apply never --"),
        format!("'{binary}' exec -q box --"),
    ]
}

/// A shell with job control on a terminal of its own, which is ready.
fn shell(person: &Person) -> Terminal {
    let mut terminal = Terminal::run_program(person, "bash", &["--norc", "-i"]);
    terminal.type_keys("PS1='> '; echo rea''dy\r");
    terminal.see("ready");
    terminal
}

/// Waits until the shell reads again after a program that had the terminal. What was typed while that program ended may
/// be thrown away, so it is typed until it was read.
fn await_shell(terminal: &mut Terminal, mark: &str) {
    let is_read = (0..20).any(|_| {
        terminal.type_keys(&format!("echo shell-a''gain-{mark}\r"));
        wait_until(Duration::from_secs(3), || {
            terminal.text().contains(&format!("shell-again-{mark}"))
        })
    });
    assert!(is_read, "the shell reads nothing:\n{}", terminal.text());
}

fn end(mut terminal: Terminal) {
    // Twice, for a shell with stopped jobs warns first.
    terminal.type_keys("exit\rexit\r");
    let _ = terminal.end();
}

#[test]
fn command_beside_a_pipe_has_the_terminal() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        for prefix in prefixes(person) {
            let mut terminal = shell(person);
            let (mut asked, mut commands) = (0, 0);
            let mut ask = |command: &str, keys: &str, answer: &str| {
                commands += 1;
                await_shell(&mut terminal, &format!("before-{commands}"));
                terminal.type_keys(&format!("{command}\r"));
                if !keys.is_empty() {
                    asked += 1;
                    terminal.see_times("ask-it", asked);
                    terminal.type_keys(keys);
                }
                terminal.see(answer);
            };
            // Standard output is a pipe, and the question is put on the terminal.
            ask(
                &format!(
                    "x=$({prefix} sh -c 'echo as''k-it >/dev/tty; read a </dev/tty; echo got $a'); echo \"[$x]\""
                ),
                "hey\r",
                "[got hey]",
            );
            // Standard input and output are pipes.
            ask(
                &format!(
                    "echo data | {prefix} sh -c 'echo as''k-it >/dev/tty; read k </dev/tty; echo and-$k' | \
                     sed 's/^/piped-/'"
                ),
                "key\r",
                "piped-and-key",
            );
            // Each stream that is the terminal outside is one inside.
            ask(
                &format!("{prefix} sh -c 'test -t 1 && echo out-is-$((1 + 1))' 2>/dev/null"),
                "",
                "out-is-2",
            );
            ask(
                &format!(
                    "{prefix} sh -c 'test -t 1 || test -t 2 && echo err-is-$((1 + 1)) >&2' | cat"
                ),
                "",
                "err-is-2",
            );
            // Neither output is the terminal, which is there nevertheless.
            ask(
                &format!("{prefix} sh -c 'echo screen-$((1 + 1)) >/dev/tty' >/dev/null 2>&1"),
                "",
                "screen-2",
            );
            end(terminal);
        }
        let _ = person.line("kill -q box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn terminal_beside_a_pipe_is_left_alone_until_it_is_wanted() {
    Person::each(|person| {
        let binary = person.binary().display().to_string();
        let script = format!(
            "'{binary}' run -q --apply never -- sh -c 'echo begun >&2; read a </dev/tty; echo got $a; read b </dev/tty' | cat"
        );
        let mut terminal = Terminal::run_program(person, "sh", &["-c", &script]);
        terminal.see("begun");
        // It asks at once, so it is raw soon; its own terminal echoes.
        let is_raw = || !terminal.modes().local_modes.contains(LocalModes::ECHO);
        assert!(wait_until(Duration::from_secs(20), is_raw));
        terminal.type_keys("one\r");
        terminal.see("got one");
        terminal.type_keys("two\r");
        assert_eq!(terminal.end(), 0);

        let marker = marker();
        let script = format!(
            "'{binary}' run -q --apply never -- sh -c 'echo begun >&2; sleep {marker}' | cat"
        );
        let mut terminal = Terminal::run_program(person, "sh", &["-c", &script]);
        terminal.see("begun");
        let local = terminal.modes().local_modes;
        assert!(
            local.contains(LocalModes::ECHO | LocalModes::ISIG),
            "{local:?}"
        );
        // A shell that is just starting its child may miss one, also without Glovebox.
        let sleeps = || {
            let found = Process::mentioning(&marker);
            found
                .iter()
                .any(|process| process.line.starts_with("sleep"))
        };
        assert!(wait_until(Duration::from_secs(10), sleeps));
        // Ctrl-C comes as a signal.
        terminal.type_keys("\x03");
        let _ = terminal.end();
        assert!(wait_until(Duration::from_secs(10), || {
            Process::mentioning(&marker).is_empty()
        }));
        person.assert_nothing_left();
    });
}

#[test]
fn ctrl_z_suspends_a_command_and_fg_takes_it_up() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        for prefix in prefixes(person) {
            let mut terminal = shell(person);
            terminal.type_keys(&format!(
                "{prefix} sh -c 'echo be''gun; read x; echo \"got $x\"; exit 3'; echo co''de $?\r"
            ));
            terminal.see("begun");
            terminal.type_keys("\x1a");
            terminal.see("Stopped");
            // The shell has its terminal as it was.
            let is_cooked = || !terminal.text().ends_with("begun");
            assert!(wait_until(Duration::from_secs(10), is_cooked));
            terminal.type_keys("echo pro''mpt\r");
            terminal.see("prompt");
            terminal.type_keys("fg\r");
            // What is typed before the command has the terminal again would be the shell's.
            std::thread::sleep(Duration::from_millis(700));
            terminal.type_keys("line\r");
            terminal.see("got line");
            await_shell(&mut terminal, "after-line");

            // One that ignores it goes on.
            terminal.type_keys(&format!(
                "{prefix} sh -c 'trap \"\" TSTP; echo de''af; read x; echo \"heard $x\"'\r"
            ));
            terminal.see("deaf");
            terminal.type_keys("\x1aafter\r");
            terminal.see("heard after");
            await_shell(&mut terminal, "after-deaf");

            // A stopped client that is killed leaves nothing running.
            let marker = marker();
            terminal.type_keys(&format!("{prefix} sh -c 'echo sle''eps; sleep {marker}'\r"));
            terminal.see("sleeps");
            // A shell that is just starting its child may miss the key, also without Glovebox.
            let sleeps = || {
                let found = Process::mentioning(&marker);
                found
                    .iter()
                    .any(|process| process.line.starts_with("sleep"))
            };
            assert!(wait_until(Duration::from_secs(20), sleeps));
            terminal.type_keys("\x1a");
            terminal.see_times("Stopped", 2);
            terminal.type_keys("kill -9 %1; kill -9 %2\r");
            if prefix != "env" {
                let is_gone = || Process::mentioning(&format!("sleep {marker}")).is_empty();
                assert!(wait_until(Duration::from_secs(20), is_gone), "{prefix}");
            }
            end(terminal);
            for left in Process::mentioning(&marker) {
                let pid = Pid::from_raw(i32::try_from(left.id).unwrap()).unwrap();
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = person.line("kill -q box").run().expect_code(0);
        person.assert_nothing_lives();
    });
}

#[test]
fn a_shell_inside_has_job_control_of_its_own() {
    Person::each(|person| {
        let mut terminal = Terminal::run(
            person,
            &["run", "--apply", "never", "--", "bash", "--norc", "-i"],
        );
        terminal.type_keys("echo in''side\r");
        terminal.see("inside");
        terminal.type_keys("sleep 40\r");
        assert!(wait_until(Duration::from_secs(10), || {
            !Process::mentioning("sleep 40").is_empty()
        }));
        std::thread::sleep(Duration::from_millis(300));
        terminal.type_keys("\x1a");
        terminal.see("Stopped");
        terminal.type_keys("kill %1; exit\rexit\r");
        let _ = terminal.end();
        person.assert_nothing_left();
    });
}

#[test]
fn pagers_and_editors_work_beside_pipes_and_are_put_aside() {
    for program in ["less", "vim"] {
        if !has_program(program) {
            testkit::skip!("needs {program}");
        }
    }
    Person::each(|person| {
        person.write("project/text", "first\n");
        for prefix in prefixes(person).into_iter().take(2) {
            let mut terminal = shell(person);
            terminal.type_keys(&format!("export LESS=; seq 1001 15''00 | {prefix} less\r"));
            terminal.see("1020");
            assert!(!terminal.text().contains("1500"), "{}", terminal.text());
            terminal.type_keys("G");
            terminal.see("1500");
            terminal.type_keys("q");
            await_shell(&mut terminal, "after-less");
            terminal.type_keys(&format!("{prefix} vim -u NONE -N text\r"));
            terminal.see("first");
            terminal.type_keys("\x1a");
            terminal.see("Stopped");
            terminal.type_keys("fg\r");
            std::thread::sleep(Duration::from_millis(700));
            terminal.type_keys(":q!\r");
            await_shell(&mut terminal, "after-vim");
            end(terminal);
        }
        person.assert_nothing_left();
    });
}
