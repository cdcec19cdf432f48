//! Pipes to a guest: temporary and permanent failures.

use crate::service::{Service, TOKEN, client, soon};
use glovebox_carrier::{Attempt, Connect as _, ConnectFailure, Pipe};
use glovebox_proto::{Class, Code, Fault};
use glovebox_sprites::{BringUp, Client, SpriteConnect};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sends a line to the shell and returns its response as a guest's first bytes.
fn say(line: &'static str) -> BringUp {
    Box::new(move |reader: &OwnedFd, writer: &OwnedFd, _| talk(reader, writer, line))
}

fn talk(reader: &OwnedFd, writer: &OwnedFd, line: &str) -> Result<Vec<u8>, Fault> {
    let ended = |_| Fault::failed(Code::CarrierFailed, "it ended before the guest was up");
    let mut writer = File::from(writer.try_clone().unwrap());
    writer.write_all(line.as_bytes()).map_err(ended)?;
    let mut answer = [0; 3];
    let mut reader = File::from(reader.try_clone().unwrap());
    reader.read_exact(&mut answer).map_err(ended)?;
    Ok(answer.to_vec())
}

fn connect(client: &Client, first: BringUp, again: BringUp) -> SpriteConnect {
    SpriteConnect::new(client.clone(), "one", first, again, Duration::from_mins(5))
}

fn up(client: &Client) -> SpriteConnect {
    connect(client, say("echo up; cat\n"), say("echo on; cat\n"))
}

fn final_fault(outcome: Result<Pipe, ConnectFailure>) -> Fault {
    match outcome {
        Err(ConnectFailure::Final(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

fn retry_fault(outcome: Result<Pipe, ConnectFailure>) -> Fault {
    match outcome {
        Err(ConnectFailure::Retry { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn pipe_leads_to_what_the_shell_has_started() {
    let service = Service::start(&[]);
    service.create("one");
    let connect = up(&service.client);
    for (attempt, greeting) in [(Attempt::First, b"up\n"), (Attempt::Again, b"on\n")] {
        let pipe = connect.connect(attempt, soon()).unwrap();
        assert_eq!(pipe.early, greeting);
        File::from(pipe.writer).write_all(b"frame").unwrap();
        let mut echoed = [0; 5];
        File::from(pipe.reader).read_exact(&mut echoed).unwrap();
        assert_eq!(&echoed, b"frame");
    }
    let path = "GET /v1/sprites/one/exec?cmd=sh&stdin=true&tty=false&max_run_after_disconnect";
    assert_eq!(
        service.requests()[1..],
        [format!("{path}=0 101"), format!("{path}=300s 101")]
    );
}

#[test]
fn first_session_asks_for_a_day_where_for_ever_is_refused() {
    let service = Service::start(&["--refuse-forever"]);
    service.create("one");
    up(&service.client).connect(Attempt::First, soon()).unwrap();
    let requests = service.requests();
    assert!(requests[1].ends_with("max_run_after_disconnect=0 400"));
    assert!(requests[2].ends_with("max_run_after_disconnect=24h 101"));
}

#[test]
fn missing_sprite_is_final() {
    let service = Service::start(&[]);
    let connect = up(&service.client);
    let fault = final_fault(connect.connect(Attempt::First, soon()));
    assert_eq!(
        (fault.class, fault.code),
        (Class::Failed, Code::SandboxNotFound)
    );
    let fault = final_fault(connect.connect(Attempt::Again, soon()));
    assert_eq!((fault.class, fault.code), (Class::Lost, Code::LinkLost));
}

#[test]
fn refused_token_is_final() {
    let service = Service::start_with_tokens(&[], "another", &[TOKEN]);
    let connect = up(&service.client);
    let fault = final_fault(connect.connect(Attempt::First, soon()));
    assert_eq!(
        (fault.class, fault.code),
        (Class::Refused, Code::NotAuthenticated)
    );
    let fault = final_fault(connect.connect(Attempt::Again, soon()));
    assert_eq!(
        (fault.class, fault.code),
        (Class::Lost, Code::NotAuthenticated)
    );
    assert!(!format!("{fault:?} {connect:?}").contains("planted"));
}

#[test]
fn expired_token_is_renewed_for_a_new_pipe() {
    let options = ["--expire-after", "1", "--next-token", "newer"];
    let service = Service::start_with_tokens(&options, TOKEN, &[TOKEN, "newer"]);
    service.create("one");
    up(&service.client).connect(Attempt::First, soon()).unwrap();
}

#[test]
fn service_that_is_away_may_come_back() {
    let mut service = Service::start(&[]);
    let connect = up(&service.client);
    service.server.kill();
    for attempt in [Attempt::First, Attempt::Again] {
        let fault = retry_fault(connect.connect(attempt, soon()));
        assert!(fault.is_retryable, "{fault:?}");
    }
    // An unreachable address is treated the same way.
    let nowhere = up(&client("http://127.0.0.1:1", &[TOKEN]));
    retry_fault(nowhere.connect(Attempt::First, soon()));
}

#[test]
fn sleeping_sprite_is_given_time_until_the_deadline() {
    let service = Service::start(&["--wake-ms", "3000"]);
    service.create("one");
    let connect = up(&service.client);
    let deadline = Instant::now() + Duration::from_millis(500);
    let fault = retry_fault(connect.connect(Attempt::First, deadline));
    assert_eq!(fault.code, Code::TimedOut);
    connect.connect(Attempt::First, soon()).unwrap();
}

#[test]
fn shell_that_ends_is_final_and_quoted() {
    let service = Service::start(&[]);
    service.create("one");
    let line = "echo 'no such guest' >&2; exit 3\n";
    let connect = connect(&service.client, say(line), say(line));
    for (attempt, class) in [
        (Attempt::First, Class::Failed),
        (Attempt::Again, Class::Lost),
    ] {
        let fault = final_fault(connect.connect(attempt, soon()));
        assert_eq!((fault.class, fault.code), (class, Code::CarrierFailed));
        assert_eq!(
            fault.message,
            "the Sprite `one`: it ended before the guest was up; the program in the Sprite ended \
             with code 3, saying: no such guest"
        );
    }
}

#[test]
fn connection_cut_during_the_start_may_be_repeated() {
    let service = Arc::new(Service::start(&[]));
    service.create("one");
    let cutting = |line: &'static str| -> BringUp {
        let service = Arc::clone(&service);
        Box::new(move |reader: &OwnedFd, writer: &OwnedFd, _| {
            talk(reader, writer, "echo up\n")?;
            service.server.control("POST", "/__contract/cut", "");
            talk(reader, writer, line)
        })
    };
    let connect = connect(&service.client, cutting("echo no\n"), cutting("echo no\n"));
    for attempt in [Attempt::First, Attempt::Again] {
        let fault = retry_fault(connect.connect(attempt, soon()));
        assert!(
            fault.message.contains("the connection to the service"),
            "{fault:?}"
        );
    }
}
