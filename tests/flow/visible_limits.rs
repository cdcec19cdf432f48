//! Limits as programs inside find them: how many processors there are, and the sandbox's own control group.

use serde_json::Value;
use std::fs;
use testkit::{Person, has_program, skip};

/// Prints how many processors a program is told of by the kernel.
const COUNT_BY_PYTHON: &str = "import os; print(len(os.sched_getaffinity(0)))";
const COUNT_BY_NODE: &str = "console.log(require('os').availableParallelism())";

/// Processors the test itself may use.
fn processors() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

#[test]
fn programs_start_on_as_many_processors_as_the_limit_needs() {
    if processors() < 2 {
        skip!("needs two processors");
    }
    Person::each(|person| {
        let count = |limit: &str, command: &[&str]| {
            let args = ["--quiet", "run", "--no-toolchains", "--cpus", limit, "--"];
            let ran = person
                .glovebox(args.iter().chain(command))
                .run()
                .expect_code(0);
            ran.out().trim().to_owned()
        };
        for (program, command) in [
            ("nproc", &["nproc"][..]),
            ("python3", &["python3", "-c", COUNT_BY_PYTHON]),
            ("node", &["node", "-e", COUNT_BY_NODE]),
        ] {
            if !has_program(program) {
                continue;
            }
            assert_eq!(count("1", command), "1", "{program}");
            assert_eq!(count("0.3", command), "1", "{program}");
            let all = processors().to_string();
            assert_eq!(count("none", command), all, "{program}");
            let limit = format!("{}.5", processors() - 1);
            assert_eq!(count(&limit, command), all, "{program}");
        }
    });
}

#[test]
fn every_command_of_a_sandbox_starts_on_the_same_processors() {
    if processors() < 2 {
        skip!("needs two processors");
    }
    Person::each(|person| {
        let _ = person
            .line("start work --no-toolchains --cpus 1")
            .run()
            .expect_code(0);
        // The second is begun beside the first, the fourth by a process that was made ready before.
        let allowed = "grep ^Cpus_allowed_list: /proc/self/status";
        let mut seen = Vec::new();
        for script in [allowed, "sleep 1 & nproc; wait", allowed, allowed] {
            let ran = person.script("exec work", script).run().expect_code(0);
            seen.push(ran.out());
        }
        assert_eq!(seen[1], "1\n");
        assert_eq!(seen[0], seen[2]);
        assert_eq!(seen[2], seen[3]);
        let number = seen[0].split_whitespace().nth(1).unwrap();
        assert!(number.parse::<u32>().is_ok(), "{seen:?}");
        let _ = person.line("kill work").run().expect_code(0);
    });
}

#[test]
fn sandboxes_spread_over_the_processors() {
    if processors() < 2 {
        skip!("needs two processors");
    }
    Person::each(|person| {
        let mut seen: Vec<String> = (0..12)
            .map(|_| {
                let ran = person
                    .script(
                        "--quiet run --no-toolchains --cpus 1",
                        "grep ^Cpus_allowed_list: /proc/self/status",
                    )
                    .run()
                    .expect_code(0);
                ran.out()
            })
            .collect();
        seen.sort();
        seen.dedup();
        // By chance all twelve are the same once in two thousand times on two processors.
        assert!(seen.len() > 1, "{seen:?}");
    });
}

/// The isolation report of a run with these flags, and what the script printed.
fn run_with_report(person: &Person, flags: &str, script: &str) -> (Value, String) {
    let path = person.place().home().join("report.json");
    let _ = fs::remove_file(&path);
    let flags = format!(
        "--quiet run --no-toolchains {flags} --report {}",
        path.display()
    );
    let ran = person.script(&flags, script).run().expect_code(0);
    let report = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    (report, ran.out())
}

#[test]
fn the_own_control_group_shows_the_limits() {
    Person::each(|person| {
        let script = "cd /sys/fs/cgroup || exit 1
            for file in memory.max memory/memory.limit_in_bytes pids.max pids/pids.max; do
                test -e $file && echo \"$file $(cat $file)\"
            done; true";
        let flags = "--memory 300MiB --pids 100 --cpus 0.5";
        let (report, seen) = run_with_report(person, flags, script);
        let is_held = |kind: &str| {
            let limits = report["limits"].as_array().unwrap();
            let limit = limits.iter().find(|limit| limit["kind"] == kind).unwrap();
            limit["state"] == "enforced"
        };
        if !is_held("memory") {
            assert_eq!(seen, "", "as {}: a group that is not there", person.name());
            return;
        }
        let memory = (300 << 20).to_string();
        let lines: Vec<_> = seen.lines().collect();
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("memory") && line.ends_with(&memory)),
            "{seen}"
        );
        // The processes of Glovebox itself are not taken from the commands' share.
        assert!(
            lines.iter().any(|line| line.ends_with("pids.max 116")),
            "{seen}"
        );
        assert_eq!(
            report["degraded"].as_array().map_or(0, Vec::len),
            0,
            "{report}"
        );
    });
}

#[test]
fn the_quota_is_where_programs_look_for_it() {
    Person::each(|person| {
        let script = "cd /sys/fs/cgroup || exit 1
            if test -e cpu.max; then cat cpu.max
            elif test -e cpu,cpuacct; then
                echo \"$(cat cpu,cpuacct/cpu.cfs_quota_us) $(cat cpu/cpu.cfs_period_us)\"
            fi";
        let (report, seen) = run_with_report(person, "--cpus 0.5", script);
        let is_held = report["limits"]
            .as_array()
            .unwrap()
            .iter()
            .any(|limit| limit["kind"] == "cpu" && limit["state"] == "enforced");
        let wanted = if is_held { "50000 100000\n" } else { "" };
        assert_eq!(seen, wanted, "as {}", person.name());
    });
}

#[test]
fn a_view_of_the_groups_survives_a_restore() {
    Person::each(|person| {
        let _ = person
            .line("start work --no-toolchains --memory 300MiB")
            .run()
            .expect_code(0);
        let look = || {
            let script = "ls -R /sys/fs/cgroup | head -50";
            person
                .script("exec work", script)
                .run()
                .expect_code(0)
                .out()
        };
        let before = look();
        let _ = person.line("checkpoint work").run().expect_code(0);
        let _ = person
            .script("exec work", "echo more > later")
            .run()
            .expect_code(0);
        let list = person.line("checkpoints work --json").run();
        let list: Value = serde_json::from_str(&list.expect_code(0).out()).unwrap();
        let id = list["data"]["checkpoints"][0]["id"]
            .as_str()
            .unwrap()
            .to_owned();
        let _ = person
            .line(&format!("restore work {id}"))
            .run()
            .expect_code(0);
        assert_eq!(look(), before);
        let _ = person
            .script("exec work", "test ! -e later")
            .run()
            .expect_code(0);
        let _ = person.line("kill work").run().expect_code(0);
    });
}

#[test]
fn the_plan_names_what_is_shown() {
    Person::each(|person| {
        let explain = |flags: &str| {
            let ran = person
                .line(&format!("run --explain --no-toolchains {flags} -- true"))
                .run()
                .expect_code(0);
            format!("{}{}", ran.out(), ran.err())
        };
        let limited = explain("--cpus 0.5 --memory 300MiB");
        if processors() > 1 {
            assert!(
                limited.contains("commands start on 1 of the machine's processors"),
                "{limited}"
            );
        }
        if person.is_root() && limited.contains("/sys/fs/cgroup") {
            assert!(limited.contains("own control group"), "{limited}");
        }
        let free = explain("--cpus none --memory none --pids none");
        assert!(!free.contains("/sys/fs/cgroup"), "{free}");
        assert!(!free.contains("processors (affinity)"), "{free}");
    });
}

#[test]
fn java_sizes_its_heap_by_the_limit() {
    if !has_program("java") {
        skip!("needs java");
    }
    let script = "java -XX:+PrintFlagsFinal -version 2>/dev/null |
        awk '$2 == \"MaxHeapSize\" {print $4}'";
    Person::each(|person| {
        // Without a limit on processors Java asks for the group of `cpu` all the same.
        for flags in ["--memory 512MiB", "--memory 512MiB --cpus none"] {
            let (report, seen) = run_with_report(person, flags, script);
            let limits = report["limits"].as_array().unwrap();
            let memory = limits.iter().find(|limit| limit["kind"] == "memory");
            if memory.unwrap()["state"] != "enforced" {
                return;
            }
            let heap: u64 = seen.trim().parse().unwrap();
            assert!(heap <= 512 << 20, "as {}, {flags}: {heap}", person.name());
        }
    });
}
