//! Trees that change while they are read or written: nothing outside them is ever touched.
//!
//! One thread exchanges a directory with a link that leads out, as fast as it can, while another
//! collects or applies. Each test has a twin that shows the exchange leading out without the
//! checks.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod fixture;

use fixture::Fixture;
use glovebox_workspace::{Node, Options, RefusalReason, RefusedPath, Resolution};
use rustix::fs::{CWD, RenameFlags};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 150;
/// Number of exchanges, even, after which everything is in its place for [`REST`]. Some rounds then
/// fall between two exchanges, and others do not.
const EXCHANGES_IN_A_ROW: u32 = 32;
const REST: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_mins(2);

/// Ends the exchanges when it goes out of scope.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `act` at least [`ROUNDS`] times, and until as many exchanges have happened. Returns the
/// number of rounds.
fn while_exchanging(a: &Path, b: &Path, mut act: impl FnMut(u32)) -> u32 {
    let is_over = AtomicBool::new(false);
    let exchanges = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // One of the two may be absent at this moment.
                let _ = rustix::fs::renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE);
                if exchanges.fetch_add(1, Ordering::Relaxed) % EXCHANGES_IN_A_ROW
                    == EXCHANGES_IN_A_ROW - 1
                {
                    std::thread::sleep(REST);
                }
            }
        });
        // Stops the exchanges even if a round fails.
        let _over = StopOnDrop(&is_over);
        let begun = Instant::now();
        for round in 0.. {
            act(round);
            // On a busy machine the other thread may get less time than this one.
            let is_enough = exchanges.load(Ordering::Relaxed) > ROUNDS;
            if round + 1 >= ROUNDS && is_enough {
                return round + 1;
            }
            assert!(begun.elapsed() < PATIENCE, "nothing is exchanged");
        }
        unreachable!()
    })
}

#[test]
fn links_exchanged_during_a_collection_lead_nowhere() {
    let fixture = Fixture::new(1);
    fixture::write(&fixture.scratch(), "secret", "the host's secret");
    fixture.layer(0, "dir/secret", "inside");
    fixture.layer(0, "file", "inside");
    fixture.layer_link(0, "dir-link", fixture.scratch().to_str().unwrap());
    fixture.layer_link(
        0,
        "file-link",
        fixture.scratch().join("secret").to_str().unwrap(),
    );
    let secret = blake3::hash(b"the host's secret");
    let mut was_seen_both_ways = [false; 2];
    let (dir, link) = (
        fixture.layer_path(0, "dir"),
        fixture.layer_path(0, "dir-link"),
    );
    let (file, file_link) = (
        fixture.layer_path(0, "file"),
        fixture.layer_path(0, "file-link"),
    );
    // The twin: an ordinary read of the same path does lead out.
    let swap = || rustix::fs::renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).unwrap();
    swap();
    assert_eq!(fs::read(dir.join("secret")).unwrap(), b"the host's secret");
    swap();
    while_exchanging(&dir, &link, |_| {
        let _ = rustix::fs::renameat_with(CWD, &file, CWD, &file_link, RenameFlags::EXCHANGE);
        let collected = fixture.collect();
        for change in &collected.set.changes {
            if let Some(Node::File { digest, .. }) = change.to() {
                assert_ne!(*digest, Some(*secret.as_bytes()), "{}", change.path);
            }
            assert!(
                !matches!(change.to(), Some(Node::Link { .. })),
                "{}",
                change.path
            );
        }
        for path in ["dir/secret", "file"] {
            if let Ok(mut content) = collected.open(&fixture::path(path)) {
                let mut text = String::new();
                content.read_to_string(&mut text).unwrap();
                assert_eq!(text, "inside");
                was_seen_both_ways[0] = true;
            } else {
                was_seen_both_ways[1] = true;
            }
        }
        // An entry that changed its type between listing and inspection cannot be transferred.
        let is_known = |refusal: &RefusedPath| {
            matches!(
                refusal.reason,
                RefusalReason::LinkLeadsOut | RefusalReason::Special
            )
        };
        assert!(collected.set.refused.iter().all(is_known));
    });
    assert_eq!(was_seen_both_ways, [true; 2]);
}

#[test]
fn links_exchanged_during_an_application_lead_nowhere() {
    let fixture = Fixture::new(1);
    fixture.host("dir/keep", "host");
    fs::create_dir_all(fixture.scratch().join("out")).unwrap();
    let link = fixture.project().join("link");
    symlink(fixture.scratch().join("out"), &link).unwrap();
    fixture.push();
    let dir = fixture.project().join("dir");
    let (mut applied, mut stopped) = (0, 0);
    let rounds = while_exchanging(&dir, &link, |round| {
        fixture.layer(0, &format!("dir/new-{round}"), "sandbox");
        fixture.layer(0, "dir/keep", &format!("sandbox {round}"));
        match fixture.pull(Options::all(Resolution::Theirs)) {
            Ok(_) => applied += 1,
            // The path changed during the write, or blocks it.
            Err(_) => stopped += 1,
        }
    });
    let out: Vec<_> = fs::read_dir(fixture.scratch().join("out"))
        .unwrap()
        .collect();
    assert!(out.is_empty(), "{out:?}");
    assert!(
        applied + stopped == rounds && applied > 0 && stopped > 0,
        "{applied} {stopped}"
    );
}
