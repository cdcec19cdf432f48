//! How things end: requests, the guest, the sandbox.

use crate::Fixture;
use crate::commands::sh;
use crate::fixture::{eventually, marker, processes};
use glovebox_proto::{Class, Code, Exec, Reply, Request};
use glovebox_sandbox::{Incoming, Sandbox};
use glovebox_spec::{LimitKind, LimitState};
use std::process::Command;
use std::time::{Duration, Instant};

/// Starts a command and waits until it runs.
fn busy(sandbox: &Sandbox, marker: &str) -> glovebox_sandbox::Stream {
    let script = format!("(setsid sleep {marker} &); sleep {marker} & echo up; wait");
    let mut stream = sandbox.open(Request::Exec(sh(&script))).unwrap();
    assert!(matches!(stream.recv(), Incoming::Data { .. }));
    assert!(
        eventually(|| processes(marker).len() == 2),
        "{:?}",
        processes(marker)
    );
    stream
}

pub(crate) fn cancelling_ends_the_command(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let marker = marker();
    let mut stream = busy(&sandbox, &marker);
    stream.cancel().unwrap();
    let reply = loop {
        if let Incoming::Reply(reply) = stream.recv() {
            break reply;
        }
    };
    match reply {
        Ok(Reply::Exited(_)) => {}
        Err(fault) => assert_eq!(fault.code, Code::Cancelled),
        other => panic!("{other:?}"),
    }
    assert!(eventually(|| processes(&marker).is_empty()));
    assert!(sandbox.ping().is_ok());
}

pub(crate) fn dropping_a_stream_ends_the_command(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let marker = marker();
    drop(busy(&sandbox, &marker));
    assert!(eventually(|| processes(&marker).is_empty()));
    // One that floods as well.
    let mut flood = sandbox
        .open(Request::Exec(Exec::new(["yes", &marker])))
        .unwrap();
    assert!(matches!(flood.recv(), Incoming::Data { .. }));
    drop(flood);
    assert!(eventually(|| processes(&marker).is_empty()));
    assert!(sandbox.ping().is_ok());
}

pub(crate) fn destroying_leaves_no_process_and_no_directory(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    assert_eq!(fixture.rooms().len(), 1);
    let marker = marker();
    let mut stream = busy(&sandbox, &marker);
    let waiting = std::thread::spawn(move || {
        loop {
            if let Incoming::Reply(reply) = stream.recv() {
                break reply;
            }
        }
    });
    sandbox.destroy().unwrap();
    assert!(eventually(|| processes(&marker).is_empty()));
    assert_eq!(waiting.join().unwrap().unwrap_err().class, Class::Lost);
    assert!(fixture.rooms().is_empty());
    assert_eq!(fixture.registry.orphans().unwrap(), []);

    // Dropping does the same.
    let sandbox = fixture.sandbox();
    let stream = busy(&sandbox, &marker);
    drop(sandbox);
    drop(stream);
    assert!(eventually(|| processes(&marker).is_empty()));
    assert!(fixture.rooms().is_empty());
}

/// Finds the process behind the sandbox: in its status file or, where a service has it, above a command. (What another
/// user may read of a guest itself is its command line alone.)
pub(crate) fn process(sandbox: &Sandbox) -> u32 {
    let text = std::fs::read(sandbox.dir().join("status.json")).unwrap();
    let status: serde_json::Value = serde_json::from_slice(&text).unwrap();
    if let Some(pid) = status["process"]["pid"].as_u64() {
        return pid.try_into().unwrap();
    }
    // Its wardens have its command line too: it is the uppermost. The brackets keep the script from finding itself.
    let script = r#"pid=$$
        while [ "$pid" -gt 1 ]; do
            tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q -e '[-]-detached' && guest=$pid
            pid=$(sed 's/.*) //' "/proc/$pid/stat" | cut -d ' ' -f 2)
        done
        echo "$guest""#;
    let output = sandbox.exec(sh(script)).unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    shown.trim().parse().unwrap()
}

pub(crate) fn the_end_of_the_guest_is_a_loss(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let mut stream = sandbox
        .open(Request::Exec(Exec::new(["sleep", "600"])))
        .unwrap();
    let waiting = std::thread::spawn(move || {
        loop {
            if let Incoming::Reply(reply) = stream.recv() {
                break reply.unwrap_err();
            }
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    let begin = Instant::now();
    let status = Command::new("kill")
        .args(["-9", &process(&sandbox).to_string()])
        .status()
        .unwrap();
    assert!(status.success());
    let fault = waiting.join().unwrap();
    assert_eq!(
        (fault.class, fault.code),
        (Class::Lost, Code::LinkLost),
        "{fault}"
    );
    assert!(begin.elapsed() < Duration::from_secs(5));
    let fault = sandbox.exec(Exec::new(["true"])).unwrap_err();
    assert_eq!(fault.class, Class::Lost);
    assert!(fault.message.contains("link"), "{fault}");
    sandbox.destroy().unwrap();
    assert!(fixture.rooms().is_empty());
}

pub(crate) fn shutdown_ends_it(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let marker = marker();
    let _stream = busy(&sandbox, &marker);
    assert_eq!(sandbox.call(Request::Shutdown), Ok(Reply::Done));
    assert!(eventually(|| processes(&marker).is_empty()));
    assert!(eventually(|| sandbox
        .ping()
        .is_err_and(|fault| fault.class == Class::Lost)));
}

pub(crate) fn the_wall_clock_limit_ends_it(fixture: &Fixture) {
    let mut spec = fixture.spec.clone();
    spec.jail.limits.wall_ms = Some(700);
    let sandbox = fixture.registry.create(&spec, None).unwrap();
    let begin = Instant::now();
    let fault = sandbox.exec(Exec::new(["sleep", "60"])).unwrap_err();
    assert_eq!(fault.class, Class::Lost);
    assert!(fault.message.contains("wall-clock limit"), "{fault}");
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
    sandbox.destroy().unwrap();

    // Called off with the sandbox.
    let sandbox = fixture.registry.create(&spec, None).unwrap();
    sandbox.destroy().unwrap();
}

pub(crate) fn a_required_limit_is_held_or_refused(fixture: &Fixture) {
    let mut spec = fixture.spec.clone();
    spec.jail.limits.memory_bytes = Some(64 << 20);
    let state = {
        let sandbox = fixture.registry.create(&spec, None).unwrap();
        let report = sandbox.report().unwrap();
        let limit = report
            .limits
            .iter()
            .find(|limit| limit.kind == LimitKind::Memory)
            .unwrap();
        assert_eq!(limit.value, 64 << 20);
        limit.state
    };
    spec.jail.require = vec![LimitKind::Memory];
    match (state, fixture.registry.create(&spec, None)) {
        (LimitState::Enforced, result) => drop(result.unwrap()),
        (_, Err(fault)) => {
            assert_eq!(
                (fault.class, fault.code),
                (Class::Refused, Code::LimitUnavailable),
                "{fault}"
            );
            assert!(fault.message.contains("memory"), "{fault}");
        }
        (state, Ok(_)) => panic!("a required limit that is {state} was accepted"),
    }
    assert!(fixture.rooms().is_empty());
}

pub(crate) fn the_report_states_facts(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let report = sandbox.report().unwrap();
    assert_eq!(report.backend, fixture.spec.backend.as_str());
    assert!(!report.kernel.is_empty());
    assert!(
        report.facts["pid"].is_i64() || report.facts["pid"].is_u64(),
        "{}",
        report.facts
    );
    assert!(!report.walls.is_empty());
    let is_walled = report
        .walls
        .iter()
        .any(|wall| wall.state == LimitState::Enforced);
    assert_eq!(is_walled, fixture.spec.backend.is_walled_here());
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(
        serde_json::from_str::<glovebox_sandbox::Report>(&text).unwrap(),
        report
    );
    assert!(report.to_string().contains(&report.name));
}
