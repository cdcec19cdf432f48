//! Round trips of a tool's call over a slow connection: each takes as many as its row says.

use crate::Fixture;
use crate::tools::{text, tools};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Time of a byte on its way, so that what is sent together is told from what waits for an answer.
const DELAY: Duration = Duration::from_millis(25);
/// Repetitions of a call. An acknowledgement can fall into one and look like a trip.
const REPETITIONS: usize = 3;

/// Trips over a connection, as its middle sees them: an answer after something was sent.
#[derive(Debug, Default)]
struct TripCounter {
    is_asked: AtomicBool,
    trips: AtomicU32,
}

impl TripCounter {
    fn passed(&self, is_from_host: bool) {
        let was_asked = self.is_asked.swap(is_from_host, Ordering::SeqCst);
        if was_asked && !is_from_host {
            self.trips.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Trips during `work`.
    fn count(&self, work: impl FnOnce()) -> u32 {
        self.trips.store(0, Ordering::SeqCst);
        work();
        self.trips.load(Ordering::SeqCst)
    }
}

/// Listens in front of a service and delays every byte. Returns its address; it ends with the test's process.
fn start_proxy(service: String, counter: Arc<TripCounter>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for host in listener.incoming().flatten() {
            let Ok(service) = TcpStream::connect(&service) else {
                return;
            };
            for stream in [&host, &service] {
                stream.set_nodelay(true).unwrap();
            }
            let copies = [&host, &service].map(|stream| stream.try_clone().unwrap());
            let [to_host, to_service] = copies;
            forward(host, to_service, true, &counter);
            forward(service, to_host, false, &counter);
        }
    });
    url
}

fn forward(mut from: TcpStream, mut to: TcpStream, is_from_host: bool, counter: &Arc<TripCounter>) {
    let counter = Arc::clone(counter);
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            counter.passed(is_from_host);
            let due = Instant::now() + DELAY;
            if sender.send((due, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        for (due, bytes) in receiver {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Makes the arguments of the call with a number.
type Arguments<'a> = &'a dyn Fn(usize) -> Value;

#[test]
fn a_call_of_a_tool_takes_no_more_round_trips_than_its_row() {
    let mut fixture = match Fixture::sprites_ws() {
        Ok(fixture) => fixture,
        Err(reason) => testkit::skip!("{reason}"),
    };
    let service = fixture.spec.option("base_url")[0].clone();
    let service = service.trim_start_matches("http://").to_owned();
    let counter = Arc::<TripCounter>::default();
    let proxy = start_proxy(service, Arc::clone(&counter));
    fixture.spec.set_option("base_url", [proxy]);
    let tools = tools(&fixture);
    let call = |tool: &str, arguments: &Value| drop(text(&tools, tool, arguments.clone()));
    // The first command of a session starts its shell.
    call(
        "Bash",
        &json!({ "command": "mkdir sub; echo needle >sub/a" }),
    );
    let number = |n: usize| json!({ "path": format!("sub/new-{n}"), "content": format!("{n}\n") });
    let edit = |n: usize| json!({ "path": format!("sub/new-{n}"), "old": format!("{n}"), "new": "changed" });
    let bash = |n: usize| json!({ "command": format!("echo {n}; cat sub/a") });
    let rows: [(&str, u32, Arguments<'_>); 7] = [
        ("Read", 1, &|_| json!({ "path": "sub/a" })),
        ("List", 1, &|_| json!({ "path": "sub" })),
        ("Glob", 1, &|_| json!({ "pattern": "sub/*" })),
        ("Grep", 1, &|_| json!({ "pattern": "needle" })),
        ("Write", 1, &number),
        ("Edit", 1, &edit),
        // It starts the job, waits for its end and reads its log.
        ("Bash", 3, &bash),
    ];
    let counted = rows.map(|(tool, most, arguments)| {
        let trips = (0..REPETITIONS).map(|n| counter.count(|| call(tool, &arguments(n))));
        (tool, most, trips.min().unwrap())
    });
    let is_within = |(_, most, trips): &(&str, u32, u32)| (1..=*most).contains(trips);
    assert!(counted.iter().all(is_within), "{counted:?}");
}
