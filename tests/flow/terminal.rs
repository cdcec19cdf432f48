//! With a terminal: the real thing inside, and the user's own given back as it was.

use crate::screen::Terminal;
use rustix::termios::LocalModes;
use std::thread;
use std::time::Duration;
use testkit::{Person, Process, wait_until};

#[test]
fn a_command_with_a_terminal_has_one() {
    Person::each(|person| {
        let script = "test -t 0 && test -t 1 && test -t 2 && stty size && echo $((6 * 7)); exit 5";
        let terminal = Terminal::run(person, &["run", "--tty", "--", "sh", "-c", script]);
        terminal.see("33 111");
        terminal.see("42");
        assert_eq!(terminal.end(), 5);
        person.assert_nothing_left();
    });
}

#[test]
fn a_shell_is_worked_in_like_any_other() {
    Person::each(|person| {
        let mut terminal = Terminal::run(person, &["run", "--tty", "--", "sh"]);
        terminal.type_keys("echo first-$((1 + 1))\r");
        terminal.see("first-2");
        assert!(
            !terminal.modes().local_modes.contains(LocalModes::ECHO),
            "the terminal is not raw"
        );
        // Ctrl-C reaches what runs in it, not glovebox.
        terminal.type_keys("sleep 4321\r");
        assert!(wait_until(Duration::from_secs(10), || {
            !Process::mentioning("sleep 4321").is_empty()
        }));
        terminal.type_keys("\x03");
        terminal.type_keys("echo second-$((2 + 2))\r");
        terminal.see("second-4");
        // A new size arrives.
        terminal.resize(44, 122);
        assert!(wait_until(Duration::from_secs(10), || {
            terminal.type_keys("stty size\r");
            thread::sleep(Duration::from_millis(200));
            terminal.text().contains("44 122")
        }));
        // Ctrl-D ends it.
        terminal.type_keys("\x04");
        assert_eq!(terminal.end(), 0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_terminal_is_given_back_when_the_sandbox_dies() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        let mut terminal = Terminal::run(person, &["attach", "box"]);
        terminal.type_keys("echo here-$((3 * 3))\r");
        terminal.see("here-9");
        let _ = person.line("kill box").run().expect_code(0);
        let code = terminal.end();
        assert_eq!(code, 4);
        person.assert_nothing_left();
    });
}

#[test]
fn leaving_a_shell_lets_it_run_and_coming_back_finds_it() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        let mut terminal = Terminal::run(person, &["attach", "box"]);
        terminal.type_keys("kept=still-$((8 * 8))\r");
        terminal.type_keys("echo ready-$((1 + 2))\r");
        terminal.see("ready-3");
        terminal.type_keys("\x1c");
        assert_eq!(terminal.end(), 0);

        let jobs = person.line("logs box --json").run().expect_code(0).out();
        assert!(jobs.contains("running"), "{jobs}");
        let mut terminal = Terminal::run(person, &["attach", "box", "--job", "1"]);
        // Keys typed before it is connected would be lost with the old settings of the terminal.
        assert!(wait_until(Duration::from_secs(10), || !terminal
            .modes()
            .local_modes
            .contains(LocalModes::ECHO)));
        terminal.type_keys("echo $kept\r");
        terminal.see("still-64");
        terminal.type_keys("exit\r");
        assert_eq!(terminal.end(), 0);
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn exec_that_was_left_is_come_back_to() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        let ask = |answer: &str| format!("echo be''gun; read a; echo {answer}-$a; read b");
        let exec = |script: &str| {
            let terminal = Terminal::run(person, &["exec", "box", "--", "sh", "-c", script]);
            terminal.see("begun");
            terminal
        };
        let mut left = exec(&ask("left"));
        // Another client looks at the youngest one.
        let watched = exec(&ask("watched"));
        left.type_keys("\x1c");
        left.see("glovebox attach box --job 1");
        assert_eq!(left.end(), 0);
        let mut back = Terminal::run(person, &["attach", "box"]);
        let is_raw = |terminal: &Terminal| {
            wait_until(Duration::from_secs(10), || {
                let modes = terminal.modes().local_modes;
                !modes.contains(LocalModes::ECHO)
            })
        };
        assert!(is_raw(&back));
        back.type_keys("me\r");
        back.see("left-me");
        back.type_keys("\r");
        assert_eq!(back.end(), 0);
        // Nothing is left now, so there is a shell.
        let mut shell = Terminal::run(person, &["attach", "box"]);
        shell.type_keys("echo shell-$((6 * 7))\r");
        shell.see("shell-42");
        shell.type_keys("exit\r");
        assert_eq!(shell.end(), 0);
        // Twice, it is the program's.
        let read =
            "stty raw -echo; echo be''gun; dd bs=1 count=1 2>/dev/null | od -An -tx1; stty sane";
        let mut program = exec(read);
        program.type_keys("\x1c\x1c");
        program.see(" 1c");
        assert_eq!(program.end(), 0);
        let _ = person.line("kill box").run().expect_code(0);
        let _ = watched.end();
        person.assert_nothing_left();
    });
}

#[test]
fn a_terminal_needs_a_terminal() {
    Person::each(|person| {
        // The terminal that the tests are run on would do.
        if std::fs::File::open("/dev/tty").is_ok() {
            return;
        }
        let ran = person.line("run --tty -- true").run().expect_code(125);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: standard input is not a terminal
        hint: run it from a terminal, or leave --tty out
        ");
        let _ = person.line("start box").run().expect_code(0);
        let ran = person.line("attach box").run().expect_code(2);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: a shell needs a terminal, and standard input is none
        hint: run single commands with `glovebox exec NAME -- COMMAND`
        ");
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn on_a_terminal_a_command_has_one_by_itself() {
    Person::each(|person| {
        let tell = "if test -t 0 && test -t 1 && test -t 2; then echo is-tty; else echo no-tty; fi; exit 5";
        let _ = person.line("start box").run().expect_code(0);
        for verb in [&["run"][..], &["exec", "box"]] {
            for (flag, want) in [(None, "is-tty"), (Some("--no-tty"), "no-tty")] {
                let mut args: Vec<&str> = vec![verb[0]];
                args.extend(flag);
                args.extend(&verb[1..]);
                args.extend(["--", "sh", "-c", tell]);
                let terminal = Terminal::run(person, &args);
                terminal.see(want);
                assert_eq!(terminal.end(), 5, "{args:?}");
            }
            // Each of the three that is one outside is one inside, and no other.
            let script = format!(
                "'{}' {} -- sh -c 'test -t 0 && test -t 2 && ! test -t 1 && echo two-of-$((1 + 2)) >&2' | cat",
                person.binary().display(),
                verb.join(" ")
            );
            let terminal = Terminal::run_program(person, "sh", &["-c", &script]);
            terminal.see("two-of-3");
            let _ = terminal.end();
        }
        let ran = person.script("run", tell).run().expect_code(5);
        assert_eq!(ran.out(), "no-tty\n", "{ran}");
        let _ = person
            .line("run --tty --no-tty -- true")
            .run()
            .expect_code(125);
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}
