//! Many at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::{Person, Process};

/// Runs `work` for each number below `count`, `width` at a time.
fn at_once(count: usize, width: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..width {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    work(number);
                }
            });
        }
    });
}

#[test]
fn two_hundred_commands_in_one_sandbox() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        at_once(200, 200, |number| {
            let script = format!("echo {number}; echo e{number} >&2; exit {}", number % 100);
            let ran = person
                .script("exec box", &script)
                .run()
                .expect_code((number % 100) as i32);
            assert_eq!(
                (ran.out(), ran.err()),
                (format!("{number}\n"), format!("e{number}\n"))
            );
        });
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_hundred_sandboxes() {
    Person::each(|person| {
        const COUNT: usize = 100;
        at_once(COUNT, 8, |number| {
            let start = person
                .line(&format!("start --quiet box-{number}"))
                .env("GLOVEBOX_MAX_SANDBOXES", "120");
            let _ = start.run().expect_code(0);
        });
        let list = person.line("list --json").run().expect_code(0).out();
        assert_eq!(list.matches(r#""state":"ready""#).count(), COUNT, "{list}");
        at_once(COUNT, 8, |number| {
            let script = format!("echo {number} > mine; cat mine; ls | wc -l");
            let ran = person
                .script(&format!("exec box-{number}"), &script)
                .run()
                .expect_code(0);
            assert_eq!(ran.out(), format!("{number}\n1\n"));
        });
        // One more than is allowed: refused in words, and the others do not notice.
        let refused = person.line("start one-more").run().expect_code(5);
        assert!(refused.err().contains("max_sandboxes"), "{refused}");
        let _ = person.line("kill --all").run().expect_code(0);
        person.assert_nothing_left();
        let state = person.place().state().display().to_string();
        let supervisors = Process::mentioning(&state);
        assert!(supervisors.is_empty(), "{supervisors:?}");
    });
}

#[test]
fn starting_one_name_at_once_makes_one() {
    Person::each(|person| {
        at_once(16, 16, |_| {
            let _ = person.line("start same").run().expect_code(0);
        });
        let list = person.line("list --json").run().expect_code(0).out();
        assert_eq!(list.matches(r#""name":"#).count(), 1, "{list}");
        let ran = person.line("kill same").run().expect_code(0);
        assert!(!ran.err().contains("error"), "{ran}");
        person.assert_nothing_left();
    });
}
