//! Descriptors from 3 on that the caller opened: those that a command line names reach the command, as files and pipes,
//! and give it no more than reading or writing.

use crate::shell_streams::{script, text};
use std::fs;
use std::process::Output;
use std::time::Duration;
use testkit::{Person, has_program, wait_until};

/// Runs a script of this shell without Glovebox and with it, by `run` and by `exec`, in a directory of its own; gives
/// what it printed, which must be the same.
fn alike(person: &Person, shell: &str, text_of_script: &str) -> String {
    let printed = ["", "$RUN", "$EXEC"].map(|way| {
        let text_of_script = text_of_script.replace("$WAY", way);
        let mut command = script(person, shell, &text_of_script, !way.is_empty());
        let output = command.output().unwrap();
        let print = text(&output);
        assert!(
            !String::from_utf8_lossy(&output.stderr).contains("glovebox:"),
            "{output:?}"
        );
        print
    });
    let [alone, run, exec] = printed;
    assert_eq!(
        run,
        alone,
        "as {}, {shell}: {text_of_script}",
        person.name()
    );
    assert_eq!(
        exec,
        alone,
        "as {}, {shell}: {text_of_script}",
        person.name()
    );
    alone
}

/// With a sandbox `box` for `exec`.
fn each(mut test: impl FnMut(&Person)) {
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        test(person);
        let _ = person.line("kill -q box").run().expect_code(0);
    });
}

/// `glovebox run` with flags and a script for `sh` inside, from this script of `bash` outside, in which `$GLOVEBOX` is
/// the program.
fn outside(person: &Person, text_of_script: &str) -> Output {
    let mut command = script(person, "bash", text_of_script, true);
    command.env("GLOVEBOX", person.binary()).output().unwrap()
}

#[test]
fn process_substitution_works_in_both_directions() {
    each(|person| {
        for shell in ["bash", "zsh"] {
            if !has_program(shell) {
                continue;
            }
            let compared = "$WAY diff <(printf 'a\\nb\\n') <(printf 'a\\nc\\n'); echo $?";
            assert!(alike(person, shell, compared).ends_with("> c\n1\n"));
            let large = "$WAY cmp <(seq 300000) <(seq 300000) && echo same";
            assert_eq!(alike(person, shell, large), "same\n");
            let named = "$WAY grep -c -f<(printf '1\\n') <(seq 100)";
            assert_eq!(alike(person, shell, named), "20\n");
            // The shell does not wait for what reads, so it says itself when it has read all.
            let written = "rm -f up; mkfifo up; $WAY sh -c 'seq 200000 >$1' sh >(md5sum >up) & cat up; wait; rm up";
            assert!(alike(person, shell, written).ends_with("-\n"));
        }
    });
}

#[test]
fn input_that_was_not_read_is_there_for_the_next_reader() {
    Person::each(|person| {
        let run = |source: &str| {
            let line = format!(
                "printf 'one\\ntwo\\nthree\\n' >list; exec 3< {source}; \
                 $GLOVEBOX run -q --apply never --fd 3 -- sh -c 'read a <&3; echo \"got $a\"'; cat <&3"
            );
            text(&outside(person, &line))
        };
        assert_eq!(run("list"), "got one\ntwo\nthree\n");
        assert_eq!(run("<(cat list)"), "got one\ntwo\nthree\n");
    });
}

#[test]
fn output_goes_where_the_caller_s_descriptor_leads() {
    Person::each(|person| {
        let line = "rm -f log; exec 4>>log; echo before >&4; \
                    $GLOVEBOX run -q --apply never --fd 4 -- sh -c 'echo inside >&4; echo out'; \
                    echo after >&4; cat log";
        assert_eq!(text(&outside(person, line)), "out\nbefore\ninside\nafter\n");
        // With `--json` as well, whose own output is the object.
        let line = "exec 3>log; $GLOVEBOX run --json --apply never --fd 3 -- sh -c 'echo x >&3' >/dev/null; cat log";
        assert_eq!(text(&outside(person, line)), "x\n");
        // What reads it leaves: the command learns of it as outside.
        let line = "$GLOVEBOX run -q --apply never --fd 3 -- sh -c 'yes >&3' 3> >(head -1 >/dev/null); echo $?";
        let begun = std::time::Instant::now();
        assert!(["141\n", "1\n"].contains(&text(&outside(person, line)).as_str()));
        assert!(begun.elapsed() < Duration::from_mins(1));
    });
}

#[test]
fn descriptor_that_cannot_be_given_is_refused_before_the_start() {
    Person::each(|person| {
        let refused = |redirections: &str, flags: &str, why: &str| {
            let line = format!(
                "$GLOVEBOX run --apply never {flags} -- touch started {redirections}; echo $?"
            );
            let output = outside(person, &line);
            assert_eq!(text(&output), "125\n", "{output:?}");
            let err = String::from_utf8_lossy(&output.stderr);
            assert!(err.contains(why), "{redirections} {flags}: {err}");
        };
        refused(
            "3</",
            "--fd 3",
            "descriptor 3 does not reach the command: it is a directory",
        );
        refused("3<>list", "--fd 3", "it is open for reading and writing");
        refused("3</dev/null", "--fd 3", "it is neither a file nor a pipe");
        refused("", "--fd 40", "it is not open");
        let many: Vec<String> = (3..20)
            .map(|number| format!(" {number}</etc/passwd"))
            .collect();
        let many = many.concat();
        let flags: Vec<String> = (3..20).map(|number| format!(" --fd {number}")).collect();
        let flags = flags.concat();
        refused(
            &many,
            &flags,
            "17 descriptors are named, and a command gets at most 16",
        );
    });
}

#[test]
fn descriptor_that_a_failing_command_lacked_is_told_with_the_flag() {
    Person::each(|person| {
        let run = |flags: &str| {
            let line = format!("$GLOVEBOX run --apply never {flags} -- sh -c 'echo x >&3' 3>log");
            let output = outside(person, &line);
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        assert!(run("").contains("`--fd 3` gives it"), "{}", run(""));
        assert!(!run("--fd 3").contains("gives it"));
        // What Glovebox itself has open under a number is nobody's to name.
        for number in 3..12 {
            // The test itself may have been started with one of this number.
            let line = format!(
                "exec {number}>&-; $GLOVEBOX run -q --apply never -- cat /dev/fd/{number} 2>&1 | tail -1"
            );
            let said = text(&outside(person, &line));
            assert!(said.contains("No such file"), "{number}: {said}");
        }
    });
}

#[test]
fn descriptor_gives_no_more_than_its_stream() {
    if !has_program("python3") {
        testkit::skip!("needs python3");
    }
    // What a file's descriptor would let a program do; each prints its name when it works.
    let tries = "import os, fcntl
def attempt(name, act):
    try:
        act(); print(name, flush=True)
    except OSError: pass
attempt('truncate', lambda: os.ftruncate(3, 0))
attempt('seek', lambda: os.lseek(3, 0, 0))
attempt('chmod', lambda: (os.fstat(3).st_size == 5 and os.fchmod(3, 0o777)) or os.fstat(99))
attempt('write', lambda: os.write(3, b'x'))
fcntl.fcntl(3, fcntl.F_SETFL, os.O_NONBLOCK)
";
    Person::each(|person| {
        person.write("project/tries.py", tries);
        let run = |way: &str| {
            let line = format!("printf 12345 >log; exec 3>>log; {way} python3 tries.py; cat log");
            text(&outside(person, &line))
        };
        assert_eq!(run(""), "truncate\nseek\nwrite\nx");
        // Twin of the attack: writing is what the descriptor is for.
        let inside = run("$GLOVEBOX run -q --apply never --fd 3 --");
        assert_eq!(inside, "write\n12345x");
        let flags = outside(
            person,
            "exec 3>>log; $GLOVEBOX run -q --apply never --fd 3 -- python3 tries.py >/dev/null; \
             python3 -c 'import fcntl, os; print(fcntl.fcntl(3, fcntl.F_GETFL) & os.O_NONBLOCK)'",
        );
        assert_eq!(text(&flags), "0\n");
    });
}

#[test]
fn job_that_goes_on_holds_no_descriptor_of_the_caller() {
    each(|person| {
        let line = "exec 3> >(cat >log; echo end >>log); \
                    $GLOVEBOX exec -q --keep-background --fd 3 box -- sh -c 'echo x >&3; sleep 30 &'; exec 3>&-";
        let _ = text(&outside(person, line));
        let log = person.project().join("log");
        let is_whole = || fs::read_to_string(&log).is_ok_and(|text| text == "x\nend\n");
        assert!(wait_until(Duration::from_secs(20), is_whole));
    });
}
