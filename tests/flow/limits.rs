//! Limits as people meet them: what they are when nobody sets any, and what goes on when one is reached.

use crate::workspace::told;
use serde_json::Value;
use std::fs;
use std::str::FromStr as _;
use testkit::{Person, marker, skip};

/// Value of a limit in the report of a run with these flags; `None` when there is no such limit.
fn limit(person: &Person, flags: &str, kind: &str) -> Option<u64> {
    let path = person.place().home().join("report.json");
    let _ = fs::remove_file(&path);
    let line = format!("run {flags} --report {} -- true", path.display());
    let _ = person.line(&line).run().expect_code(0);
    let report: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let limits = report["limits"].as_array().unwrap();
    let found = limits.iter().find(|limit| limit["kind"] == kind)?;
    found["value"].as_u64()
}

#[test]
fn without_settings_a_sandbox_has_room_to_work() {
    Person::each(|person| {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
        let total_kib: u64 = meminfo.split_whitespace().nth(1).unwrap().parse().unwrap();
        let half = total_kib * 1024 / 2;
        let memory = limit(person, "", "memory").unwrap();
        assert!(memory >= 2 << 30, "{memory}");
        assert!(
            memory == 2 << 30 || half - memory < 1 << 20,
            "{memory} of {half}"
        );
        assert_eq!(limit(person, "", "pids"), Some(4096));
        assert_eq!(limit(person, "", "disk"), Some(10 << 30));
        assert_eq!(limit(person, "", "cpu"), None, "all processors");
        assert_eq!(limit(person, "", "wall"), None, "no deadline");
        assert_eq!(limit(person, "--cpus 0.5", "cpu"), Some(500));
    });
}

/// The limit holds for the first command of a sandbox, for those that a process made ready before becomes, and for
/// what they start. A command cannot take it back.
#[test]
fn each_program_may_have_as_many_open_files_as_the_limit_says() {
    const SEEN: &str =
        "ulimit -Sn; ulimit -Hn; sh -c 'ulimit -n'; ulimit -n 65 2>/dev/null || echo refused";
    Person::each(|person| {
        let _ = person
            .line("start work --open-files 64")
            .run()
            .expect_code(0);
        for _ in 0..3 {
            let ran = person.script("exec work", SEEN).run().expect_code(0);
            assert_eq!(ran.out(), "64\n64\n64\nrefused\n", "as {}", person.name());
        }
        // Names that are open files: standard streams and the directory that is listed are among them.
        let open = "for i in $(seq 3 100); do eval \"exec $i</dev/null\" || exit 9; done";
        let failed = person.script("exec work", open).run();
        assert_ne!(failed.code, 0, "{failed}");
        let usual = person.script("run", "ulimit -Sn; ulimit -Hn").run();
        let usual = usual.expect_code(0).out().clone();
        let hard = u64::from_str(usual.lines().last().unwrap()).unwrap();
        assert!(hard <= 16_384, "{usual}");
        // More than every sandbox has, as far as this process itself may have more.
        let own = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let expected = own.maximum.map_or(20_000, |max| max.min(20_000));
        let more = person.script("run --open-files 20000", "ulimit -n").run();
        assert_eq!(more.expect_code(0).out(), format!("{expected}\n"));
        assert_eq!(
            limit(person, "--open-files 64 --require open-files", "open-files"),
            Some(64)
        );
        let wrong = person
            .line("run --open-files 3 -- true")
            .run()
            .expect_code(125);
        insta::assert_snapshot!(wrong.failure(person.place().root()), @"
        error: --open-files: `3` open files are too few or too many
        hint: write a number from 16 to 1048576, or `none` for 16384
        ");
    });
}

#[test]
fn cpu_time_ends_what_computes_and_not_what_waits() {
    Person::each(|person| {
        let waits = person.line("run --cpu-time 1s -- sleep 2").run();
        let _ = waits.expect_code(0);
        // Also what is shared among many short processes.
        for script in [
            "while :; do :; done",
            "while :; do sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'; done",
        ] {
            let ended = person.script("run --cpu-time 1s", script).run();
            assert_ne!(ended.code, 0, "{ended}");
            let reason = "it used more than its CPU time limit of 1 s";
            assert!(ended.err().contains(reason), "{ended}");
            assert!(ended.err().contains("`--cpu-time`"), "{ended}");
        }
        assert_eq!(limit(person, "--cpu-time 10m", "cpu-time"), Some(600_000));
        person.assert_nothing_left();
    });
}

#[test]
fn too_much_memory_ends_the_command_and_not_the_sandbox() {
    Person::each(|person| {
        let _ = person
            .line("start work --memory 200MiB")
            .run()
            .expect_code(0);
        let marker = marker();
        // Another command goes on meanwhile.
        let beside = format!("sleep {marker} >/dev/null 2>&1 &");
        let _ = person
            .script("exec --keep-background work", &beside)
            .run()
            .expect_code(0);
        // Reads what `tail` holds byte by byte, and ends with it.
        let hold = "head -c 600M /dev/zero | tail -c 600M | read -r held; exit 1";
        let said = [hold.to_owned(), format!("({hold}) & wait; exit 2")].map(|script| {
            // The kernel ends one process, the watch ends the command with all it started.
            told(person, &person.script("exec work", &script).run())
        });
        insta::assert_snapshot!(said.join("\n"), @"
        glovebox: the memory limit of 200MiB was reached: raise it with --memory
        glovebox: the memory limit of 200MiB was reached: raise it with --memory
        ");
        let ran = person
            .script("exec work", "echo alive")
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "alive\n");
        assert_eq!(testkit::Process::mentioning(&marker).len(), 1);
        let _ = person.line("kill work").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn memory_overuse_without_a_control_group_is_137() {
    Person::each(|person| {
        if person.is_root() {
            return;
        }
        let _ = person
            .line("start work --memory 200MiB")
            .run()
            .expect_code(0);
        let script =
            "echo before; head -c 600M /dev/zero | tail -c 600M | read -r held; echo after";
        let ran = person.script("exec work", script).run().expect_code(137);
        assert_eq!(ran.out(), "before\n", "{ran}");
        let ran = person
            .glovebox(["exec", "--json", "work", "--", "sh", "-c", script])
            .run()
            .expect_code(137);
        assert!(ran.out().contains("\"oom\":true"), "{ran}");
        let _ = person.line("exec work -- true").run().expect_code(0);
        let _ = person.line("kill work").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_limit_that_is_required_must_be_held_by_the_kernel() {
    Person::each(|person| {
        let ran = person
            .line("run --require disk -- true")
            .run()
            .expect_code(125);
        assert!(ran.err().contains("disk"), "{ran}");
        if !person.is_root() {
            let ran = person
                .line("run --require memory -- true")
                .run()
                .expect_code(125);
            assert!(ran.err().contains("memory"), "{ran}");
        }
        if testkit::has_layers_in_memory() {
            let _ = person
                .line("run --layers memory --require disk -- true")
                .run()
                .expect_code(0);
        }
        person.assert_nothing_left();
    });
}

#[test]
fn a_full_disk_is_the_writers_where_the_kernel_can_tell() {
    Person::each(|person| {
        if testkit::has_layers_in_memory() {
            let script = "for i in 1 2 3; do head -c 3M /dev/zero > $i || exit 7; done";
            let ran = person
                .script("run --apply never --layers memory --disk 8MiB", script)
                .run()
                .expect_code(7);
            assert!(ran.err().contains("No space left on device"), "{ran}");
        }
        // A small one as well: layers stay where they were asked for, whatever their size.
        if testkit::has_layers_in_memory() {
            for size in ["64KiB", "1MiB"] {
                let script = "for i in 1 2 3; do head -c 512K /dev/zero > $i || exit 7; done";
                let line = format!("run --apply never --layers memory --disk {size}");
                let ran = person.script(&line, script).run().expect_code(7);
                assert!(ran.err().contains("No space left on device"), "{ran}");
            }
        }
        // One large file is refused at once wherever it lies.
        let ran = person
            .script(
                "run --apply never --disk 8MiB",
                "exec head -c 50M /dev/zero > large",
            )
            .run()
            .expect_code(153);
        assert!(ran.err().contains("disk limit of 8MiB"), "{ran}");
        person.assert_nothing_left();
    });
}

/// Makes 150,000 of one kind below a directory, and then waits for the watch.
const MAKE_MANY: &str = r#"
import os, sys, time
kind, place = sys.argv[1:]
make = {
    "file": lambda name: os.close(os.open(name, os.O_CREAT | os.O_WRONLY)),
    "link": lambda name: os.symlink("x", name),
    "dir": os.mkdir,
    "fifo": os.mkfifo,
}[kind]
for number in range(150000):
    make(f"{place}/{kind}{number}")
time.sleep(20)
"#;

#[test]
fn files_without_content_count_against_the_disk_limit() {
    if !crate::without_network::has("python3") {
        skip!("python3 is not installed");
    }
    Person::each(|person| {
        let make = |line: &str, kind: &str, place: &str| {
            let words = line
                .split(' ')
                .chain(["--", "python3", "-c", MAKE_MANY, kind, place]);
            person.glovebox(words).run()
        };
        for kind in ["file", "link", "dir", "fifo"] {
            let ran = make("run -q --apply never --disk 4MiB", kind, ".").expect_code(125);
            let said =
                "it made more than 1024 files, which is all that its disk limit of 4 MiB allows";
            // A directory may take as many bytes as a file is counted for.
            let is_by_bytes = kind == "dir" && ran.err().contains("its disk limit of 4 MiB");
            assert!(is_by_bytes || ran.err().contains(said), "{kind}: {ran}");
            assert!(ran.err().contains("--disk"), "{kind}: {ran}");
            if testkit::has_layers_in_memory() {
                let line = "run -q --apply never --layers memory --disk 4MiB";
                let ran = make(line, kind, ".").expect_code(1);
                assert!(
                    ran.err().contains("No space left on device"),
                    "{kind}: {ran}"
                );
            }
            let ran = make("run -q --apply never --memory 64MiB", kind, "/dev/shm").expect_code(1);
            assert!(
                ran.err().contains("No space left on device"),
                "{kind}: {ran}"
            );
        }
        // As many as the limit allows are made.
        let script = "i=0; while [ $i -lt 800 ]; do : > f$i || exit 1; i=$((i + 1)); done";
        let _ = person
            .script("run -q --apply never --disk 4MiB", script)
            .run()
            .expect_code(0);
        person.assert_nothing_left();
    });
}
