//! Output without end flows through and is never piled up.

use std::io::Read;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use testkit::{Person, Process};

/// No process of glovebox may ever have been larger, in KiB.
const MAX_RESIDENT_KIB: u64 = 64 << 10;
/// Bytes of the flood.
const FLOOD: u64 = 2 << 30;

/// The most memory a process ever had, in KiB; proc_pid_status(5).
pub(crate) fn peak_kib(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}

/// Runs a call, swallows its output with pauses, and gives the bytes and the largest peak of any
/// process that belongs to it or to the sandbox at `state`.
fn swallow(person: &Person, mut call: testkit::Glovebox, is_slow: bool) -> (u64, u64) {
    let state = person.place().state().display().to_string();
    let mut child = call
        .command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id();
    let is_over = AtomicBool::new(false);
    let mut total = 0;
    let peak = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut peak = 0;
            while !is_over.load(Ordering::Relaxed) {
                let supervisors = Process::mentioning(&state);
                let mut ids: Vec<u32> = supervisors
                    .iter()
                    .map(|process| process.id)
                    .chain([id])
                    .collect();
                let families: Vec<u32> = ids
                    .iter()
                    .flat_map(|id| Process::descendants(*id))
                    .map(|process| process.id)
                    .collect();
                ids.extend(families);
                peak = ids.into_iter().map(peak_kib).fold(peak, u64::max);
                thread::sleep(Duration::from_millis(100));
            }
            peak
        });
        let mut stdout = child.stdout.take().unwrap();
        let mut buffer = vec![0; 256 << 10];
        let expected = b"y\n".repeat(buffer.len() / 2 + 1);
        loop {
            let read = stdout.read(&mut buffer).unwrap();
            if read == 0 {
                break;
            }
            let from = (total % 2) as usize;
            assert!(buffer[..read] == expected[from..from + read]);
            total += read as u64;
            if is_slow {
                thread::sleep(Duration::from_millis(20));
            }
        }
        is_over.store(true, Ordering::Relaxed);
        watch.join().unwrap()
    });
    let status = child.wait().unwrap();
    assert!(status.success(), "{status} after {total} bytes");
    (total, peak)
}

#[test]
fn a_flood_needs_no_memory() {
    Person::each(|person| {
        let call = person.script("run --quiet", &format!("yes | head -c {FLOOD}"));
        let (bytes, peak) = swallow(person, call, false);
        assert_eq!(bytes, FLOOD);
        assert!(peak > 0 && peak < MAX_RESIDENT_KIB, "{peak} KiB");

        let _ = person.line("start box").run().expect_code(0);
        let (amount, slow) = (FLOOD / 4, 16 << 20);
        let (bytes, peak) = swallow(
            person,
            person.script("exec box", &format!("yes | head -c {amount}")),
            false,
        );
        assert_eq!(bytes, amount);
        assert!(peak > 0 && peak < MAX_RESIDENT_KIB, "{peak} KiB");
        // A reader that does not keep up slows the writer down instead of filling memory.
        let (bytes, peak) = swallow(
            person,
            person.script("exec box", &format!("yes | head -c {slow}")),
            true,
        );
        assert_eq!(bytes, slow);
        assert!(peak < MAX_RESIDENT_KIB, "{peak} KiB");
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn nobody_reading_ends_the_command() {
    Person::each(|person| {
        let mut call = person.line("run --quiet -- yes");
        let mut child = call
            .command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 4096]).unwrap();
        drop(stdout);
        let begin = std::time::Instant::now();
        let status = child.wait().unwrap();
        assert!(
            !status.success() && begin.elapsed() < Duration::from_secs(5),
            "{status}"
        );
        person.assert_nothing_left();
    });
}
