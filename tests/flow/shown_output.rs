//! What a sandbox wrote, shown on the user's terminal: it can be read, and makes the terminal do nothing.

use crate::screen::Terminal;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use testkit::{Person, wait_until};

/// Asks the terminal who it is and where the cursor is, sets a title, hides the cursor, and is red.
const LOUD: &str =
    r"printf '\033[31mred\033[0m \033[6n\033[c\033]0;title\007\033[?25l\033[?1049h end-of-log\n'";

#[test]
fn a_log_on_a_terminal_shows_what_would_act_on_it() {
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        let _ = person.script("exec box", LOUD).run().expect_code(0);
        for args in [
            &["logs", "box", "1"][..],
            &["logs", "--follow", "box", "1"],
            &["attach", "box", "--job", "1"],
        ] {
            let terminal = Terminal::run(person, args);
            terminal.see("end-of-log");
            let screen = terminal.screen();
            assert_eq!(terminal.end(), 0);
            let text = screen.lock().unwrap().clone();
            // Colours are for people; everything else is for the terminal and stays words.
            assert!(text.contains("\x1b[31mred\x1b[0m"), "{args:?}: {text:?}");
            assert!(
                text.contains("\\x1b[6n\\x1b[c\\x1b]0;title\\x07\\x1b[?25l"),
                "{args:?}: {text:?}"
            );
            for acting in ["\x1b[6n", "\x1b[c", "\x1b]", "\x1b[?"] {
                assert!(!text.contains(acting), "{args:?}: {text:?}");
            }
        }
        let terminal = Terminal::run(person, &["logs", "--raw", "box", "1"]);
        terminal.see("\x1b[6n\x1b[c\x1b]0;title\x07\x1b[?25l");
        assert_eq!(terminal.end(), 0);
        // Into a pipe it is written exactly.
        let ran = person.line("logs box 1").run().expect_code(0);
        assert_eq!(
            ran.stdout,
            b"\x1b[31mred\x1b[0m \x1b[6n\x1b[c\x1b]0;title\x07\x1b[?25l\x1b[?1049h end-of-log\n",
            "{ran}"
        );
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_sequence_that_arrives_in_parts_is_shown_as_well() {
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        let script = r"printf '\033'; sleep 0.4; printf '[6'; sleep 0.4; printf 'n \033[3'; sleep 0.4; \
            printf '2mgreen\033[0m done\n'";
        let job = person.glovebox(["exec", "box", "--", "sh", "-c", script]);
        thread::scope(|scope| {
            let job = scope.spawn(|| job.run().expect_code(0));
            assert!(wait_until(Duration::from_secs(20), || {
                person
                    .line("logs box --json")
                    .run()
                    .out()
                    .contains("running")
            }));
            let terminal = Terminal::run(person, &["logs", "--follow", "box", "1"]);
            terminal.see("done");
            let text = terminal.text();
            assert!(
                text.contains("\\x1b[6n") && text.contains("\x1b[32mgreen"),
                "{text:?}"
            );
            assert!(!text.contains("\x1b[6n"), "{text:?}");
            assert_eq!(terminal.end(), 0);
            let _ = job.join().unwrap();
        });
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

/// Takes the terminal as an editor does: another screen, mouse, bracketed paste, no cursor, a colour.
const EDITOR: &str =
    r"printf '\033[?1049h\033[?1000h\033[?1006h\033[?2004h\033[?25l\033[1;35mopen-now'";

/// Fails unless each of these modes is put back after the last word of the program.
fn assert_given_back(screen: &Mutex<String>) {
    let sequences = ["[?1049l", "[?1000l", "[?1006l", "[?2004l", "[?25h", "[0m"];
    let missing = || {
        let text = screen.lock().unwrap().clone();
        let (_, after) = text.rsplit_once("open-now")?;
        sequences
            .into_iter()
            .find(|sequence| !after.contains(&format!("\x1b{sequence}")))
    };
    // What was written last may still be on its way to the reader of the terminal.
    let is_back = wait_until(Duration::from_secs(5), || missing().is_none());
    let text = screen.lock().unwrap().clone();
    assert!(is_back, "no {:?}: {text:?}", missing());
}

#[test]
fn a_terminal_is_given_back_as_it_was_after_its_program() {
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        let killed = format!("{EDITOR}; kill -9 $$");
        for args in [
            &["run", "--tty", "--", "sh", "-c", EDITOR][..],
            &["exec", "--tty", "box", "--", "sh", "-c", EDITOR],
            &["exec", "--tty", "box", "--", "sh", "-c", &killed],
        ] {
            let terminal = Terminal::run(person, args);
            terminal.see("open-now");
            let screen = terminal.screen();
            let _ = terminal.end();
            assert_given_back(&screen);
        }
        // Nothing is written for a program that left nothing behind.
        let tidy = r"printf '\033[?1049h\033[?25lx\033[?25h\033[?1049l\033[1mb\033[0m-tidy'";
        let terminal = Terminal::run(person, &["exec", "--tty", "box", "--", "sh", "-c", tidy]);
        terminal.see("-tidy");
        let screen = terminal.screen();
        assert_eq!(terminal.end(), 0);
        thread::sleep(Duration::from_millis(300));
        let text = screen.lock().unwrap().clone();
        assert!(text.ends_with("-tidy"), "{text:?}");
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn leaving_a_program_gives_the_terminal_back_as_it_was() {
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        let mut terminal = Terminal::run(person, &["attach", "box"]);
        terminal.type_keys(&format!("{EDITOR}; sleep 4000\r"));
        // The first one is the echo of what was typed.
        terminal.see("\x1b[1;35mopen-now");
        terminal.type_keys("\x1c");
        let screen = terminal.screen();
        assert_eq!(terminal.end(), 0);
        assert_given_back(&screen);

        // So it is when the sandbox dies under the program.
        let terminal = Terminal::run(
            person,
            &[
                "exec",
                "--tty",
                "box",
                "--",
                "sh",
                "-c",
                &format!("{EDITOR}; sleep 4000"),
            ],
        );
        terminal.see("open-now");
        let _ = person.line("kill box").run().expect_code(0);
        let screen = terminal.screen();
        let _ = terminal.end();
        assert_given_back(&screen);
        person.assert_nothing_left();
    });
}
