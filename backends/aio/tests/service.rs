//! The library against a server with the contract of an AIO Sandbox, which really runs commands.
//!
//! The guest is a small script here: it returns its input line by line, so every byte crosses the
//! service twice.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

use glovebox_aio::{ApiKey, BaseUrl, Client, Connector, GuestProgram, PipeSizes, Placement, Probe};
use glovebox_carrier::{Attempt, Connect as _, ConnectFailure, Pipe};
use glovebox_proto::{Class, Code, Fault};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::{ContractServer, wait_until};

/// Maximum time for each step; no test waits for it.
const GUARD: Duration = Duration::from_mins(1);
/// Key of the form that users have.
const KEY: &str = "planted-key-4711";

/// Records its mode in RUN_DIR, then returns every line.
const ECHO: &str = r#"#!/bin/sh
case "$1 $2" in
  "serve --resume") mkdir "$3" || exit 8; echo "a banner"; [ "$4" = --lines ] || exit 9; run=$3 ;;
  "link --lines") [ -d "$3" ] || { echo "no guest in $3" >&2; exit 3; }; run=$3 ;;
  *) exit 9 ;;
esac
echo "$1" >>"$run/started"
exec cat
"#;

/// Server, and the directory with everything that commands there write.
struct Service {
    dir: TempDir,
    server: ContractServer,
}

impl Service {
    fn start(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key_file = dir.path().join("key");
        fs::write(&key_file, KEY).unwrap();
        let home = dir.path().join("home");
        let mut arguments = vec!["--prefix", "/box/7", "--dir", text(&home)];
        arguments.extend(["--key-file", text(&key_file)]);
        arguments.extend(options);
        let server = ContractServer::start("aio", &arguments);
        Self { dir, server }
    }

    fn client_with(&self, key: Option<ApiKey>) -> Client {
        let base = BaseUrl::parse(&format!("{}/box/7/", self.server.url())).unwrap();
        Client::new(base, key).unwrap()
    }

    fn client(&self) -> Client {
        self.client_with(Some(ApiKey::new(KEY.to_owned().into(), None)))
    }

    fn run_dir(&self) -> PathBuf {
        self.dir.path().join("it's a run dir")
    }

    fn connector(&self, sizes: PipeSizes) -> Connector {
        let run_dir = text(&self.run_dir()).to_owned();
        Connector::new(self.client(), echo(), Placement::default(), run_dir, sizes)
    }

    /// Returns the started commands of the guest, in their order.
    fn started(&self) -> String {
        fs::read_to_string(self.run_dir().join("started")).unwrap_or_default()
    }

    fn add_fault(&self, fault: &str) {
        self.server.control("POST", "/__contract/fault", fault);
    }

    /// Returns the number of requests to `path`.
    fn count(&self, path: &str) -> u64 {
        self.server.journal()["requests"][path]
            .as_u64()
            .unwrap_or_default()
    }

    /// Checks that no request had a field, a parameter or a path that the service does not know.
    fn assert_nothing_refused(&self) {
        let journal = self.server.journal();
        assert_eq!(journal["refusals"], serde_json::json!([]), "{journal}");
    }

    fn open_sessions(&self) -> Vec<String> {
        self.client().list_sessions(soon()).unwrap()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn soon() -> Instant {
    Instant::now() + GUARD
}

fn guest_of(bytes: impl Into<Vec<u8>>) -> GuestProgram {
    let bytes = bytes.into();
    let mut sum = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    sum.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = sum.wait_with_output().unwrap();
    let sha256 = String::from_utf8(output.stdout[..64].to_vec()).unwrap();
    GuestProgram::new(sha256, move || Ok(bytes.clone()))
}

fn echo() -> GuestProgram {
    guest_of(ECHO)
}

fn probe(client: &Client) -> Result<Probe, Fault> {
    client.probe(&echo(), &Placement::default(), soon())
}

fn final_fault(result: Result<Pipe, ConnectFailure>) -> Fault {
    match result {
        Err(ConnectFailure::Final(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

/// Pipe with blocking ends.
struct Ends {
    reader: UnixStream,
    writer: UnixStream,
    pipe: Pipe,
}

fn ends(pipe: Pipe) -> Ends {
    let reader = UnixStream::from(pipe.reader.try_clone().unwrap());
    let writer = UnixStream::from(pipe.writer.try_clone().unwrap());
    reader.set_read_timeout(Some(GUARD)).unwrap();
    writer.set_write_timeout(Some(GUARD)).unwrap();
    Ends {
        reader,
        writer,
        pipe,
    }
}

/// Returns records in the carrier's form: data of these sizes, each at its offset.
fn records(sizes: impl IntoIterator<Item = u16>) -> Vec<u8> {
    let (mut bytes, mut offset, mut seed) = (Vec::new(), 0_u64, 1_u32);
    for size in sizes {
        bytes.extend([2, 0]);
        bytes.extend(size.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes.extend((0..size).map(|_| {
            // Every byte value, in an order that no codec can predict.
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed.to_le_bytes()[3]
        }));
        offset += u64::from(size);
    }
    bytes
}

/// Writes `bytes` and reads as many back.
fn exchange(ends: &Ends, bytes: &[u8]) -> Vec<u8> {
    let mut back = vec![0; bytes.len()];
    let mut writer = &ends.writer;
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(bytes).unwrap());
        (&ends.reader).read_exact(&mut back).unwrap();
    });
    back
}

/// Reads to the pipe's end; returns its reason.
fn reason_at_end(ends: &Ends) -> String {
    // Bytes still in transit do not matter here.
    (&ends.reader).read_to_end(&mut Vec::new()).unwrap();
    ends.pipe.end.reason().unwrap_or_default()
}

#[test]
fn probe_tells_facts_and_leaves_nothing() {
    let service = Service::start(&[]);
    let found = probe(&service.client()).unwrap();
    assert_eq!(found.facts.version, "1.9.4");
    assert_eq!(found.facts.os, "Linux");
    let home = service.dir.path().join("home");
    assert_eq!(found.home.as_deref(), Some(text(&home)));
    assert_eq!(found.guest_dir, text(&home.join(".cache/glovebox")));
    assert!(!found.has_guest);
    assert!(wait_until(GUARD, || service.open_sessions().is_empty()));
    service.assert_nothing_refused();
}

#[test]
fn guest_is_uploaded_once_and_again_when_it_was_changed() {
    let service = Service::start(&[]);
    for _ in 0..2 {
        service
            .connector(PipeSizes::default())
            .connect(Attempt::First, soon())
            .unwrap();
        assert_eq!(service.count("/v1/file/upload"), 1);
    }
    let found = probe(&service.client()).unwrap();
    assert!(found.has_guest);
    let kept: Vec<_> = fs::read_dir(&found.guest_dir).unwrap().flatten().collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    // A command there can overwrite the program; the guest that runs must be the embedded one.
    fs::write(kept[0].path(), "#!/bin/sh\nexit 1\n").unwrap();
    service
        .connector(PipeSizes::default())
        .connect(Attempt::First, soon())
        .unwrap();
    assert_eq!(service.count("/v1/file/upload"), 2);
    assert_eq!(fs::read_to_string(kept[0].path()).unwrap(), ECHO);
    service.assert_nothing_refused();
}

#[test]
fn guest_goes_in_by_pieces_where_an_upload_may_not_be_as_large() {
    let service = Service::start(&["--upload-limit", "100000"]);
    let padded = [ECHO.as_bytes(), &vec![b'#'; 1_200_000]].concat();
    let connector = Connector::new(
        service.client(),
        guest_of(padded.clone()),
        Placement::default(),
        text(&service.run_dir()),
        PipeSizes::default(),
    );
    let ends = ends(connector.connect(Attempt::First, soon()).unwrap());
    let sent = records([100]);
    assert_eq!(exchange(&ends, &sent), sent);
    assert_eq!(service.count("/v1/file/upload"), 1);
    assert_eq!(service.count("/v1/file/write"), 3);
    let dir = service.dir.path().join("home/.cache/glovebox");
    let kept: Vec<_> = fs::read_dir(dir).unwrap().flatten().collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(fs::read(kept[0].path()).unwrap(), padded);
    service.assert_nothing_refused();
}

#[test]
fn guest_that_always_arrives_changed_is_refused() {
    let service = Service::start(&[]);
    let other = GuestProgram::new("0".repeat(64), || Ok(ECHO.into()));
    let connector = Connector::new(
        service.client(),
        other,
        Placement::default(),
        text(&service.run_dir()),
        PipeSizes::default(),
    );
    let fault = final_fault(connector.connect(Attempt::First, soon()));
    assert_eq!(fault.code, Code::CarrierFailed);
    assert!(
        fault.message.contains("SHA-256 sum is wrong"),
        "{}",
        fault.message
    );
    // Both ways were tried, and both cleaned up.
    assert_eq!(service.count("/v1/file/write"), 1);
    let dir = service.dir.path().join("home/.cache/glovebox");
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
    assert_eq!(service.started(), "");
}

fn carries_bytes_exactly(latency: &str) {
    let service = Service::start(&["--latency", latency]);
    let connector = service.connector(PipeSizes::default());
    let ends = ends(connector.connect(Attempt::First, soon()).unwrap());
    // Records of every size, 4 MiB in all.
    let sent = records(
        (0..)
            .map(|index: u32| (index * 7919 % 32_769) as u16)
            .take(256),
    );
    assert!(sent.len() > 4 << 20, "{}", sent.len());
    assert!(exchange(&ends, &sent) == sent, "the bytes are others");
    // Waiting records are sent together: far fewer requests than records.
    let writes = service.count("/v1/bash/write");
    assert!(writes < 128, "{writes} writes");
    service.assert_nothing_refused();
}

#[test]
fn pipe_carries_bytes_exactly() {
    carries_bytes_exactly("0");
}

#[test]
fn pipe_carries_bytes_exactly_over_a_slow_link() {
    carries_bytes_exactly("50");
}

#[test]
fn small_answers_of_the_service_lose_no_output() {
    let service = Service::start(&["--answer-limit", "1000"]);
    let connector = service.connector(PipeSizes::default());
    let ends = ends(connector.connect(Attempt::First, soon()).unwrap());
    let sent = records([30_000, 1, 7]);
    assert_eq!(exchange(&ends, &sent), sent);
}

#[test]
fn small_message_and_its_answer_take_one_round_trip() {
    let service = Service::start(&["--latency", "500"]);
    let connector = service.connector(PipeSizes::default());
    let ends = ends(connector.connect(Attempt::First, soon()).unwrap());
    let sent = records([100]);
    let fastest = (0..3)
        .map(|_| {
            let began = Instant::now();
            assert_eq!(exchange(&ends, &sent), sent);
            began.elapsed()
        })
        .min()
        .unwrap();
    // The responses to the write and to the pending read arrive together.
    assert!(fastest < Duration::from_millis(900), "{fastest:?}");
}

#[test]
fn refused_key_is_read_again_once_and_shown_nowhere() {
    let service = Service::start(&[]);
    let wrong = ApiKey::new("wrong-planted".to_owned().into(), None);
    for key in [Some(wrong), None] {
        let fault = probe(&service.client_with(key)).unwrap_err();
        assert_eq!(
            (fault.class, fault.code),
            (Class::Refused, Code::NotAuthenticated)
        );
        assert!(!format!("{fault:?}").contains("planted"), "{fault:?}");
    }
    // The service quotes the key that it refuses.
    service.add_fault(&format!(
        r#"{{"path": "/v1/sandbox", "status": 500, "body": "no {KEY}", "count": 1}}"#
    ));
    let fault = probe(&service.client()).unwrap_err();
    assert!(fault.message.contains("no [key]"), "{fault:?}");
    let file = service.dir.path().join("new key");
    fs::write(&file, format!("{KEY}\n")).unwrap();
    let old = ApiKey::new("an-expired-one".to_owned().into(), Some(file));
    let client = service.client_with(Some(old));
    assert_eq!(format!("{client:?}").matches(KEY).count(), 0);
    probe(&client).unwrap();
}

#[test]
fn key_is_in_no_argument_of_any_process() {
    let service = Service::start(&[]);
    let connector = service.connector(PipeSizes::default());
    let ends = ends(connector.connect(Attempt::First, soon()).unwrap());
    exchange(&ends, &records([10]));
    let mut read = 0;
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let arguments = fs::read(process.path().join("cmdline")).unwrap_or_default();
        read += usize::from(!arguments.is_empty());
        let shown = String::from_utf8_lossy(&arguments).into_owned();
        assert!(!shown.contains(KEY), "{shown}");
    }
    assert!(read > 2, "only {read} processes were seen");
}

#[test]
fn guest_has_the_environment_of_the_container_without_its_secrets() {
    let service = Service::start(&[]);
    let guest = guest_of("#!/bin/sh\nenv >\"$3\"\nexec cat\n");
    let run_dir = text(&service.run_dir()).to_owned();
    let (client, placement) = (service.client(), Placement::default());
    let connector = Connector::new(client, guest, placement, run_dir, PipeSizes::default());
    let ends = ends(connector.connect(Attempt::First, soon()).unwrap());
    exchange(&ends, &records([1]));
    let environment = fs::read_to_string(service.run_dir()).unwrap();
    assert!(environment.contains("HOME="), "{environment}");
    assert!(!environment.contains("SANDBOX_API_KEY"), "{environment}");
    assert!(!environment.contains(KEY), "{environment}");
}

#[test]
fn key_that_expires_ends_the_pipe_and_loses_the_guest() {
    let service = Service::start(&[]);
    let connector = service.connector(PipeSizes {
        wait: 1,
        ..PipeSizes::default()
    });
    let ends = ends(connector.connect(Attempt::First, soon()).unwrap());
    exchange(&ends, &records([10]));
    service
        .server
        .control("POST", "/__contract/key", "another-key");
    let reason = reason_at_end(&ends);
    assert!(reason.contains("status 401"), "{reason}");
    let fault = final_fault(connector.connect(Attempt::Again, soon()));
    assert_eq!(
        (fault.class, fault.code),
        (Class::Lost, Code::NotAuthenticated)
    );
}

#[test]
fn image_without_an_api_for_commands_is_named() {
    let service = Service::start(&["--no-bash"]);
    let fault = probe(&service.client()).unwrap_err();
    assert_eq!(fault.code, Code::Unsupported);
    let sentence = "this AIO Sandbox has no /v1/bash API; use an image of 2026 or later";
    assert_eq!(fault.message, sentence);
    let connector = service.connector(PipeSizes::default());
    assert_eq!(
        final_fault(connector.connect(Attempt::First, soon())).message,
        sentence
    );
}

#[test]
fn directory_without_programs_is_named() {
    let service = Service::start(&[]);
    let placement = Placement {
        guest_dir: Some("/proc/nowhere".to_owned()),
        ..Placement::default()
    };
    let fault = service
        .client()
        .probe(&echo(), &placement, soon())
        .unwrap_err();
    assert!(
        fault.message.contains("cannot be kept in /proc/nowhere"),
        "{fault:?}"
    );
    let placement = Placement {
        cwd: Some("/proc/nowhere".to_owned()),
        ..Placement::default()
    };
    let fault = service
        .client()
        .probe(&echo(), &placement, soon())
        .unwrap_err();
    assert_eq!(fault.code, Code::CwdNotFound, "{fault:?}");
}

#[test]
fn working_directory_is_made_for_the_guest() {
    let service = Service::start(&[]);
    let cwd = service.dir.path().join("home/it's/new");
    let placement = Placement {
        cwd: Some(text(&cwd).to_owned()),
        ..Placement::default()
    };
    let guest = guest_of("#!/bin/sh\npwd >here\nexec cat\n");
    let run_dir = text(&service.run_dir()).to_owned();
    let connector = Connector::new(
        service.client(),
        guest,
        placement,
        run_dir,
        PipeSizes::default(),
    );
    let ends = ends(connector.connect(Attempt::First, soon()).unwrap());
    exchange(&ends, &records([1]));
    assert_eq!(
        fs::read_to_string(cwd.join("here")).unwrap().trim_end(),
        text(&cwd)
    );
}

#[test]
fn service_that_is_away_or_busy_may_be_tried_again() {
    let service = Service::start(&[]);
    let connector = service.connector(PipeSizes::default());
    for (fault, wanted) in [
        (
            r#"{"path": "/v1/sandbox", "status": 429, "retry_after": 7, "count": 1}"#,
            (Code::RateLimited, Some(Duration::from_secs(7))),
        ),
        (
            r#"{"path": "/v1/bash/exec", "status": 503, "count": 1}"#,
            (Code::CarrierFailed, None),
        ),
        (
            r#"{"path": "/v1/sandbox", "lose_answer": true, "count": 1}"#,
            (Code::CarrierFailed, None),
        ),
    ] {
        service.add_fault(fault);
        match connector.connect(Attempt::First, soon()) {
            Err(ConnectFailure::Retry {
                fault: found,
                after,
            }) => {
                assert_eq!((found.code, after), wanted, "{fault}");
            }
            other => panic!("{fault}: {other:?}"),
        }
    }
    connector.connect(Attempt::First, soon()).unwrap();
    let closed = BaseUrl::parse("http://127.0.0.1:1").unwrap();
    let fault = probe(&Client::new(closed, None).unwrap()).unwrap_err();
    assert!(
        fault.is_retryable && fault.message.contains("cannot be reached"),
        "{fault:?}"
    );
}

#[test]
fn deadline_holds() {
    let service = Service::start(&["--latency", "60000"]);
    let began = Instant::now();
    let deadline = began + Duration::from_millis(300);
    let fault = service
        .client()
        .probe(&echo(), &Placement::default(), deadline)
        .unwrap_err();
    assert_eq!(fault.code, Code::TimedOut);
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn guest_is_started_once_though_the_answer_was_lost() {
    let service = Service::start(&[]);
    probe(&service.client()).unwrap();
    // The first two requests are probe and installation.
    service.add_fault(r#"{"path": "/v1/bash/exec", "skip": 2, "count": 1, "lose_answer": true}"#);
    let connector = service.connector(PipeSizes::default());
    let ends = ends(connector.connect(Attempt::First, soon()).unwrap());
    let sent = records([10, 20]);
    assert_eq!(exchange(&ends, &sent), sent);
    assert_eq!(service.started(), "serve\n");
}

#[test]
fn guest_of_an_attempt_whose_answers_were_all_lost_is_not_in_the_way() {
    let service = Service::start(&[]);
    probe(&service.client()).unwrap();
    service.add_fault(r#"{"path": "/v1/bash/exec", "skip": 2, "count": 1, "lose_answer": true}"#);
    service.add_fault(r#"{"path": "/v1/bash/output", "count": 1, "lose_answer": true}"#);
    let connector = service.connector(PipeSizes::default());
    let failure = connector.connect(Attempt::First, soon()).unwrap_err();
    assert!(
        matches!(failure, ConnectFailure::Retry { .. }),
        "{failure:?}"
    );
    let first = ends(connector.connect(Attempt::First, soon()).unwrap());
    let sent = records([10, 20]);
    assert_eq!(exchange(&first, &sent), sent);
    let again = ends(connector.connect(Attempt::Again, soon()).unwrap());
    assert_eq!(exchange(&again, &sent), sent);
    // Only the guest of the second attempt has a session.
    drop((first, again));
    assert!(wait_until(GUARD, || service.open_sessions().len() == 1));
}

#[test]
fn write_whose_answer_was_lost_comes_again_as_whole_records() {
    let service = Service::start(&[]);
    let connector = service.connector(PipeSizes::default());
    let ends = ends(connector.connect(Attempt::First, soon()).unwrap());
    let greeting = records([5]);
    exchange(&ends, &greeting);
    service.add_fault(r#"{"path": "/v1/bash/write", "count": 1, "lose_answer": true}"#);
    let sent = records([100, 200]);
    // An incomplete record waits for its rest: half a record could not be sent again.
    (&ends.writer).write_all(&sent[..150]).unwrap();
    let mut back = vec![0; 112 * 2];
    (&ends.reader).read_exact(&mut back).unwrap();
    assert_eq!(back, [&sent[..112], &sent[..112]].concat());
    (&ends.writer).write_all(&sent[150..]).unwrap();
    let mut back = vec![0; 212];
    (&ends.reader).read_exact(&mut back).unwrap();
    assert_eq!(back, sent[112..]);
}

#[test]
fn requests_that_fail_for_a_moment_do_not_end_the_pipe() {
    let service = Service::start(&[]);
    let connector = service.connector(PipeSizes {
        wait: 1,
        ..PipeSizes::default()
    });
    let ends = ends(connector.connect(Attempt::First, soon()).unwrap());
    exchange(&ends, &records([5]));
    service.add_fault(r#"{"status": 503, "lasts_ms": 500}"#);
    service.add_fault(r#"{"path": "/v1/bash/output", "count": 3, "lose_answer": true}"#);
    let sent = records([1000, 2000]);
    assert_eq!(exchange(&ends, &sent), sent);
    assert_eq!(service.started(), "serve\n");
}

#[test]
fn closing_a_later_pipe_closes_its_session_and_the_first_stays() {
    let service = Service::start(&[]);
    let connector = service.connector(PipeSizes::default());
    let pipe = ends(connector.connect(Attempt::First, soon()).unwrap());
    // A response proves that the guest runs.
    exchange(&pipe, &records([5]));
    drop(pipe);
    let first = service.open_sessions();
    assert_eq!(first.len(), 1);
    let again = ends(connector.connect(Attempt::Again, soon()).unwrap());
    assert_eq!(service.open_sessions().len(), 2);
    exchange(&again, &records([5]));
    drop(again);
    assert!(
        wait_until(GUARD, || service.open_sessions() == first),
        "{:?}",
        service.open_sessions()
    );
    drop(connector);
    assert_eq!(service.open_sessions(), [""; 0]);
    // Closing a closed session succeeds.
    service.client().close_session(&first[0], soon()).unwrap();
    service.assert_nothing_refused();
}

#[test]
fn restart_of_the_container_loses_the_guest() {
    let service = Service::start(&[]);
    let connector = service.connector(PipeSizes::default());
    let first = ends(connector.connect(Attempt::First, soon()).unwrap());
    exchange(&first, &records([5]));
    service.server.control("POST", "/__contract/restart", "");
    assert!(!reason_at_end(&first).is_empty());
    // The files exist, the guest does not.
    fs::remove_dir_all(service.run_dir()).unwrap();
    let again = ends(connector.connect(Attempt::Again, soon()).unwrap());
    let reason = reason_at_end(&again);
    assert!(reason.contains("exit code 3: no guest in"), "{reason}");
    // A new container has no files either.
    fs::remove_dir_all(service.dir.path().join("home/.cache")).unwrap();
    let gone = ends(connector.connect(Attempt::Again, soon()).unwrap());
    let reason = reason_at_end(&gone);
    assert!(reason.contains("exit code 127"), "{reason}");
    let fault = final_fault(connector.connect(Attempt::Again, soon()));
    assert_eq!(
        (fault.class, fault.code),
        (Class::Lost, Code::LinkLost),
        "{fault:?}"
    );
}

#[test]
fn service_that_does_not_come_back_is_tried_again() {
    let mut service = Service::start(&[]);
    let connector = service.connector(PipeSizes::default());
    let first = ends(connector.connect(Attempt::First, soon()).unwrap());
    exchange(&first, &records([5]));
    service.server.kill();
    let reason = reason_at_end(&first);
    assert!(reason.contains("cannot be reached"), "{reason}");
    let failure = connector.connect(Attempt::Again, soon()).unwrap_err();
    assert!(
        matches!(failure, ConnectFailure::Retry { .. }),
        "{failure:?}"
    );
}
