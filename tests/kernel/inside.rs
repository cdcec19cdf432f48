//! What the machine runs: the product as a person uses it, by whoever it is run as.
//!
//! These tests are ignored everywhere else; `checks` names them.

use serde_json::Value;
use testkit::{Canary, Person, Ran};

fn json(ran: &Ran) -> Value {
    assert_eq!(ran.code, 0, "{ran}");
    serde_json::from_slice(&ran.stdout).unwrap()
}

/// How well each of these limits holds, and by what, as a sandbox's report has it.
fn limits(person: &Person, kinds: [&str; 3]) -> [(String, String); 3] {
    let place = person.place().root().join("report");
    let call = person.line("run --quiet --memory 64MiB --pids 32 --cpus 0.5 --report");
    call.args([place.as_os_str()])
        .args(["--", "true"])
        .run()
        .expect_code(0);
    let report: Value = serde_json::from_slice(&std::fs::read(place).unwrap()).unwrap();
    let limits = report["limits"].as_array().unwrap();
    kinds.map(|kind| {
        let found = limits.iter().find(|limit| limit["kind"] == kind);
        let found = found.unwrap_or_else(|| panic!("no limit {kind}: {report:#}"));
        let text = |name: &str| found[name].as_str().unwrap().to_owned();
        (text("state"), text("mechanism"))
    })
}

/// Whether the running kernel is at least this one.
fn has_kernel(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

mod anybody {
    use super::*;

    #[test]
    #[ignore = "runs in the machine this suite starts"]
    fn doctor_misses_nothing() {
        let person = Person::myself();
        let doctor = json(&person.line("doctor --json").run());
        assert_eq!(doctor["data"]["native_usable"], true, "{doctor:#}");
        for finding in doctor["data"]["findings"].as_array().unwrap() {
            let is_missing = finding["state"] == "missing";
            assert!(!is_missing, "{finding:#}");
            // What may be weaker here: limits of a user without delegation, one user id.
            let may_be_weaker = finding["id"].as_str().is_some_and(|id| {
                id.starts_with("cgroup-")
                    || id == "id-ranges"
                    || id == "landlock"
                    || id == "tracing"
            });
            assert!(finding["state"] == "ok" || may_be_weaker, "{finding:#}");
        }
    }

    #[test]
    #[ignore = "runs in the machine this suite starts"]
    fn a_command_comes_back_byte_for_byte() {
        let person = Person::myself();
        person.line("run -- true").run().expect_code(0);
        let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let ran = person
            .script("run --quiet", "cat; echo words >&2; exit 42")
            .input(bytes.clone())
            .run()
            .expect_code(42);
        assert!(ran.stdout == bytes, "{} bytes came back", ran.stdout.len());
        assert_eq!(ran.err(), "words\n");
        person.assert_nothing_left();
    }

    #[test]
    #[ignore = "runs in the machine this suite starts"]
    fn what_is_written_does_not_reach_the_project() {
        let person = Person::myself();
        let canary = Canary::plant(person.project());
        let script = "echo new > new && cat new && rm -rf deep file.txt && mkdir deep && ls deep";
        let ran = person.script("run --quiet", script).run().expect_code(0);
        assert_eq!(ran.out(), "new\n");
        canary.assert_untouched();
    }

    #[test]
    #[ignore = "runs in the machine this suite starts"]
    fn layers_in_memory_hold_or_are_refused_in_words() {
        let person = Person::myself();
        let ran = person
            .script("run --quiet --layers memory", "rm -r d; mkdir d; echo fine")
            .run();
        if has_kernel(6, 6) {
            assert!(ran.code == 0 && ran.out() == "fine\n", "{ran}");
        } else {
            assert_eq!((ran.code, ran.out().as_str()), (125, ""), "{ran}");
            assert!(
                ran.err().contains("layers in memory need Linux 6.6"),
                "{ran}"
            );
        }
    }

    #[test]
    #[ignore = "runs in the machine this suite starts"]
    fn a_named_sandbox_lives_its_life() {
        let person = Person::myself();
        person.line("start box").run().expect_code(0);
        let inside = |script: &str| person.script("exec box", script).run().expect_code(0).out();
        inside("echo one > kept");
        person.line("checkpoint box -m early").run().expect_code(0);
        inside("echo two > kept; echo more > more");
        person.line("restore box v1").run().expect_code(0);
        assert_eq!(inside("cat kept; ls"), "one\nkept\n");
        person.line("pull box").run().expect_code(0);
        let kept = std::fs::read_to_string(person.project().join("kept")).unwrap();
        assert_eq!(kept, "one\n");
        assert!(!person.project().join("more").exists());
        person.line("kill box").run().expect_code(0);
        let list = json(&person.line("list --json").run());
        assert_eq!(list["data"]["sandboxes"], Value::Array(Vec::new()));
        person.assert_nothing_left();
    }
}

mod limited {
    use super::*;

    #[test]
    #[ignore = "runs in the machine this suite starts"]
    fn every_limit_is_held_by_version_2() {
        let person = Person::myself();
        let kinds = ["memory", "pids", "cpu"];
        for (kind, (state, mechanism)) in kinds.iter().zip(limits(&person, kinds)) {
            assert_eq!(state, "enforced", "{kind}: {mechanism}");
            // Controllers are called as limits are.
            assert_eq!(mechanism, format!("cgroup v2, {kind}"));
        }
    }

    #[test]
    #[ignore = "runs in the machine this suite starts"]
    fn too_much_memory_is_death() {
        let person = Person::myself();
        let ran = person
            .script("run --quiet --memory 48MiB", "exec tail /dev/zero")
            .run()
            .expect_code(137);
        assert!(ran.err().contains("the memory limit"), "{ran}");
        assert!(ran.err().contains("--memory"), "{ran}");
        person.assert_nothing_left();
    }

    #[test]
    #[ignore = "runs in the machine this suite starts"]
    fn too_many_processes_are_refused() {
        let person = Person::myself();
        let script = "for i in $(seq 40); do sleep 60 & done; wait";
        let ran = person
            .script("run --quiet --pids 20 --timeout 30s", script)
            .run();
        assert_ne!(ran.code, 0, "{ran}");
        assert!(ran.err().contains("fork"), "{ran}");
        person.assert_nothing_left();
    }

    #[test]
    #[ignore = "runs in the machine this suite starts"]
    fn a_quarter_of_a_processor_is_no_more() {
        let person = Person::myself();
        let spin = "my $end = time + 3; 1 while time < $end; print((times)[0])";
        let ran = person
            .line("run --quiet --cpus 0.25 -- perl -e")
            .args([spin])
            .run()
            .expect_code(0);
        let used: f64 = ran.out().parse().unwrap();
        // Of at least two seconds, and without a limit nearly all of three.
        assert!(used > 0.0 && used < 1.2, "{used} s of processor time");
    }
}

mod held {
    use super::*;

    /// A process that timers continue whenever a signal has stopped it -> the group's freezer holds it, and its
    /// files are copied. Twin: it goes on afterwards.
    #[test]
    #[ignore = "runs in the machine this suite starts"]
    fn what_signals_cannot_stop_is_held_by_its_group() {
        let person = Person::myself();
        let restless = format!(
            r#"$SIG{{CONT}} = sub {{}};
               for my $ms (3, 5, 7, 11, 13, 17) {{
                 my ($id, $event) = ("\0" x 8, pack('Qiix48', 0, 18, 0));
                 syscall({create}, 1, $event, $id) == 0 or die "timer: $!";
                 my $every = pack('qqqq', 0, $ms * 1_000_000, 0, $ms * 1_000_000);
                 syscall({set}, unpack('i', $id), 0, $every, 0) == 0 or die "timer: $!"; }}
               for (my $n = 0; ; $n++) {{ open(F, '>', 'count'); print F $n; close(F); rename('count', 'seen'); }}"#,
            create = libc::SYS_timer_create,
            set = libc::SYS_timer_settime,
        );
        person.write("project/restless.pl", restless);
        person.line("start box").run().expect_code(0);
        let inside = |script: &str| person.script("exec box", script).run().expect_code(0).out();
        let begin = "perl restless.pl < /dev/null > said 2>&1 &";
        let begun = person.script("exec --keep-background box", begin).run();
        begun.expect_code(0);
        let within_reason = |condition: &str| {
            inside(&format!(
                "for i in $(seq 200); do {condition} && exit; sleep 0.1; done; cat said; exit 1"
            ))
        };
        within_reason("[ -e seen ]");
        for _ in 0..3 {
            person.line("checkpoint box --live").run().expect_code(0);
        }
        let before = inside("cat seen");
        within_reason(&format!("[ \"$(cat seen)\" != '{before}' ]"));
        person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    }
}

mod unlimited {
    use super::*;

    #[test]
    #[ignore = "runs in the machine this suite starts"]
    fn what_does_not_hold_is_said() {
        let person = Person::myself();
        let found = limits(&person, ["memory", "pids", "cpu"]);
        assert_eq!(
            found.each_ref().map(|(state, _)| state.as_str()),
            ["approximate", "approximate", "absent"]
        );
        for (_, mechanism) in found {
            assert!(mechanism.contains("Delegate=yes"), "{mechanism}");
        }
        let ran = person.line("run --cpus 1 --require cpu -- true").run();
        assert!(
            ran.code == 125 && ran.err().contains("Delegate=yes"),
            "{ran}"
        );
    }
}
