//! Debuggers, strace and sanitizers among a sandbox's own processes, and a checkpoint in spite of them.

use std::time::Duration;
use testkit::{Person, has_program, skip, wait_until};

const PROGRAMS: [&str; 3] = ["gcc", "gdb", "strace"];

/// Prints one line per program that works.
const TRACING: &str = r#"d=$(mktemp -d)
gcc -fsanitize=address -o $d/address hello.c && test "$($d/address)" = hello && echo address
gcc -fsanitize=leak -o $d/leak leak.c && $d/leak 2>&1 | grep -q 'detected memory leaks' && echo leak
strace -f -e trace=execve -o $d/log sh -c '/bin/true; exit 0' && grep -q '"/bin/true"' $d/log && echo strace
gdb -batch -ex run /bin/true 2>&1 | grep -q 'exited normally' && echo gdb
sleep 60 & gdb -p $! -batch -ex 'info inferiors' 2>&1 | grep -q "process $!" && echo attached
kill $!
"#;

fn lacks_programs() -> bool {
    PROGRAMS.iter().any(|program| !has_program(program))
}

#[test]
fn debuggers_and_sanitizers_work_on_what_a_command_started() {
    if lacks_programs() {
        skip!("needs {}", PROGRAMS.join(", "));
    }
    Person::each(|person| {
        person.write(
            "project/hello.c",
            "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n",
        );
        person.write(
            "project/leak.c",
            "#include <stdlib.h>\nvoid *volatile p;\n\
             int main(void) { p = malloc(40); p = 0; return 0; }\n",
        );
        let ran = person
            .script("run -q --no-toolchains --apply discard", TRACING)
            .run()
            .expect_code(0);
        let expected = "address\nleak\nstrace\ngdb\nattached\n";
        assert_eq!(ran.out(), expected, "as {}: {}", person.name(), ran.err());
        // Commands that may make namespaces are in no domain that would keep them apart.
        let path = person.place().home().join("report.json");
        let flags = format!(
            "run -q --no-toolchains --nested --apply discard --report {}",
            path.display()
        );
        let script = "strace -o /dev/null true 2>&1 | grep -c 'not permitted'";
        let _ = person.script(&flags, script).run().expect_code(0);
        let report = std::fs::read_to_string(path).unwrap();
        let hint = "debug in a sandbox that holds no others";
        assert!(report.contains(hint), "as {}: {report}", person.name());
    });
}

#[test]
fn checkpoint_holds_what_is_traced_and_lets_it_go_on() {
    if lacks_programs() {
        skip!("needs {}", PROGRAMS.join(", "));
    }
    Person::each(|person| {
        let _ = person
            .line("start -q box --no-toolchains")
            .run()
            .expect_code(0);
        let traced = "strace -f -o /dev/null sh -c \
             'while :; do echo x >> /tmp/log; done' >/dev/null 2>&1 &";
        let _ = person
            .script("exec --keep-background box", traced)
            .run()
            .expect_code(0);
        let count = || -> u64 {
            let ran = person
                .script("exec box", "cat /tmp/log 2>/dev/null | wc -l")
                .run();
            ran.out().trim().parse().unwrap()
        };
        assert!(wait_until(Duration::from_secs(20), || count() > 0));
        for _ in 0..3 {
            let _ = person.line("checkpoint --live box").run().expect_code(0);
            let before = count();
            assert!(wait_until(Duration::from_secs(20), || count() > before));
        }
        let _ = person.line("kill box").run().expect_code(0);
    });
}
