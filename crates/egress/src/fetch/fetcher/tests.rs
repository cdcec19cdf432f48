//! Requests to a server on loopback, which names of these tests are pinned to.

use super::*;
use crate::fetch::request::Redirects;
use crate::outward::resolve::Resolve;
use crate::policy::Policy;
use crate::policy::name::Name;
use glovebox_proto::EgressReason;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const BUDGET: FetchBudget = FetchBudget {
    requests: 100,
    parallel: 4,
    sent_bytes: 1000,
    answer_bytes: 10_000,
    received_bytes: 50_000,
};

/// Knows one name, which leads to this machine.
#[derive(Debug)]
struct Home;

impl Resolve for Home {
    fn addresses(&self, name: &Name) -> io::Result<Vec<IpAddr>> {
        match name.as_str() {
            "home.example" => Ok(vec!["127.0.0.1".parse().unwrap()]),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// A server that answers each request by its head and its body; how many it was asked.
fn serve(
    answer: impl Fn(&str, &[u8], &mut TcpStream) + Send + Sync + 'static,
) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (answer, asked) = (Arc::new(answer), Arc::<AtomicUsize>::default());
    let seen = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            seen.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut head, mut length) = (String::new(), 0);
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    if line == "\r\n" || line.is_empty() {
                        break;
                    }
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    head.push_str(&line);
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                answer(&head, &body, &mut stream);
            });
        }
    });
    (port, asked)
}

fn say(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    );
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body));
}

/// A client for these hosts.
fn client(allow: &[String], deny: &[&str]) -> FetchClient {
    let deny: Vec<String> = deny.iter().map(|&word| word.to_owned()).collect();
    let policy = Policy::new(allow, &deny).unwrap();
    FetchClient::new(policy, Arc::new(Home), b"").unwrap()
}

struct Caller {
    session: FetchSession,
    replies: Receiver<FetchReply>,
    next: u32,
    // Dropped last: sessions are of a fetcher.
    _fetcher: Fetcher,
}

impl Caller {
    fn new(allow: &[String], deny: &[&str], wait: Duration) -> Self {
        let fetcher = Fetcher::start(32).unwrap();
        let (send, replies) = channel();
        let caller = FetchCaller {
            client: &client(allow, deny),
            group: &FetchGroup::new(32),
            account: &Arc::default(),
        };
        Self {
            session: fetcher.open(caller, BUDGET, Instant::now() + wait, send),
            replies,
            next: 0,
            _fetcher: fetcher,
        }
    }

    fn begin(&mut self, method: &str, url: &str, body: &[u8]) -> u32 {
        self.next += 1;
        let request = FetchRequest::parse(method, url, &[], body.to_vec(), Redirects::Follow);
        self.session.begin(self.next, request);
        self.next
    }

    fn ask(&mut self, method: &str, url: &str, body: &[u8]) -> Result<FetchAnswer, FetchError> {
        let id = self.begin(method, url, body);
        let reply = self.replies.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(reply.id, id);
        reply.outcome
    }

    fn get(&mut self, url: &str) -> Result<FetchAnswer, FetchError> {
        self.ask("GET", url, b"")
    }
}

const LONG: Duration = Duration::from_secs(20);

fn pinned(name: &str, port: u16) -> String {
    format!("{name}:{port}=127.0.0.1")
}

#[test]
fn a_request_reaches_a_listed_host_as_it_was_written_and_with_nothing_added() {
    let (port, _) = serve(|head, body, stream| {
        let told = [head.as_bytes(), b"|", body].concat();
        say(
            stream,
            "201 Made Up",
            "X-A: 1\r\nx-a: 2\r\nx-b: \u{e9}\r\n",
            &told,
        );
    });
    let mut caller = Caller::new(&[pinned("a.example", port)], &[], LONG);
    let answer = caller
        .ask("PUT", &format!("http://A.example:{port}/x?y=1#z"), b"hello")
        .unwrap();
    assert_eq!(
        (answer.status, answer.status_text.as_str(), answer.hops),
        (201, "Made Up", 0)
    );
    let values: Vec<&str> = answer
        .headers
        .iter()
        .filter(|(name, _)| name.starts_with("x-"))
        .map(|(_, value)| value.as_str())
        .collect();
    // The bytes of a value are told one by one.
    assert_eq!(values, ["1", "2", "\u{c3}\u{a9}"]);
    let text = String::from_utf8(answer.body).unwrap();
    let (head, body) = text.split_once('|').unwrap();
    let mut lines: Vec<&str> = head.lines().collect();
    assert_eq!(lines.remove(0), "PUT /x?y=1 HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: a.example:{port}");
    assert_eq!(lines, ["accept: */*", "content-length: 5", host.as_str()]);
    assert_eq!(body, "hello");
}

#[test]
fn hosts_that_are_not_allowed_are_not_asked() {
    let (port, asked) = serve(|_, _, stream| say(stream, "200 OK", "", b""));
    let allow = [
        pinned("a.example", port),
        pinned("bad.example", port),
        format!("home.example:{port}"),
        "nowhere.example".to_owned(),
    ];
    let mut caller = Caller::new(&allow, &["bad.example"], LONG);
    for (url, reason) in [
        (format!("http://b.example:{port}/"), EgressReason::Unlisted),
        (format!("http://127.0.0.1:{port}/"), EgressReason::Unlisted),
        (format!("http://0x7f.1:{port}/"), EgressReason::Unlisted),
        (format!("http://localhost:{port}/"), EgressReason::Unlisted),
        ("http://a.example/".to_owned(), EgressReason::Port),
        // A rule that closes goes before one that opens.
        (format!("http://bad.example:{port}/"), EgressReason::Denied),
        // Its name leads to this machine.
        (
            format!("http://home.example:{port}/"),
            EgressReason::Private,
        ),
    ] {
        let error = caller.get(&url).unwrap_err();
        assert!(
            matches!(&error, FetchError::Refused { reason: found, .. } if *found == reason),
            "{url}: {error:?}"
        );
    }
    let error = caller.get("http://nowhere.example/").unwrap_err();
    assert!(error.to_string().contains("does not resolve"), "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert!(caller.get(&format!("http://a.example:{port}/")).is_ok());
}

#[test]
fn a_redirect_is_a_decision_of_its_own() {
    let (port, _) = serve(|head, _, stream| {
        let path = head.split(' ').nth(1).unwrap();
        let location = match path {
            "/same" => "/end".to_owned(),
            "/away" => "http://evil.example/".to_owned(),
            "/metadata" => "http://169.254.169.254/latest/".to_owned(),
            "/file" => "file:///etc/passwd".to_owned(),
            "/user" => "http://ann:pw@a.example/".to_owned(),
            "/round" => "/round".to_owned(),
            _ => return say(stream, "200 OK", "", path.as_bytes()),
        };
        say(
            stream,
            "302 Found",
            &format!("location: {location}\r\n"),
            b"",
        );
    });
    let mut caller = Caller::new(&[pinned("a.example", port)], &[], LONG);
    let url = |path: &str| format!("http://a.example:{port}{path}");
    let answer = caller.get(&url("/same")).unwrap();
    assert_eq!(
        (answer.body.as_slice(), answer.hops),
        (b"/end".as_slice(), 1)
    );
    assert_eq!(answer.url.as_str(), url("/end"));
    for (path, told) in [
        ("/away", "evil.example:80 may not be reached"),
        ("/metadata", "169.254.169.254:80 may not be reached"),
        ("/file", "neither http: nor https:"),
        ("/user", "a user or a password"),
        ("/round", "again and again"),
    ] {
        let error = caller.get(&url(path)).unwrap_err().to_string();
        assert!(error.contains(told), "{path}: {error}");
    }
    for (redirects, is_error) in [(Redirects::Refuse, true), (Redirects::Return, false)] {
        let request = FetchRequest::parse("GET", &url("/away"), &[], Vec::new(), redirects);
        caller.session.begin(100, request);
        let outcome = caller.replies.recv_timeout(LONG).unwrap().outcome;
        assert_eq!(outcome.is_err(), is_error, "{outcome:?}");
    }
}

#[test]
fn what_a_server_sends_is_bounded() {
    let (port, _) = serve(|head, _, stream| match head.split(' ').nth(1).unwrap() {
        "/large" => say(stream, "200 OK", "", &[b'x'; 10_001]),
        "/fits" => say(stream, "200 OK", "", &[b'x'; 10_000]),
        // It never ends, and does not say how long it is.
        "/endless" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while stream.write_all(&[b'x'; 1000]).is_ok() {}
        }
        "/many" => say(stream, "200 OK", &"a: b\r\n".repeat(200), b""),
        "/long" => {
            let header = format!("a: {}\r\n", "x".repeat(30_000));
            say(stream, "200 OK", &header.repeat(3), b"");
        }
        "/longer" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\na: ");
            while stream.write_all(&[b'x'; 1000]).is_ok() {}
        }
        "/nonsense" => drop(stream.write_all(b"what?\r\n\r\n")),
        "/split" => drop(stream.write_all(b"HTTP/1.1 200 OK\r\na b: c\r\n\r\n")),
        _ => {}
    });
    let mut caller = Caller::new(&[pinned("a.example", port)], &[], LONG);
    let url = |path: &str| format!("http://a.example:{port}{path}");
    assert_eq!(caller.get(&url("/fits")).unwrap().body.len(), 10_000);
    for (path, part) in [("/large", "body"), ("/endless", "body"), ("/long", "head")] {
        let error = caller.get(&url(path)).unwrap_err();
        assert!(
            matches!(&error, FetchError::TooLarge { part: found, .. } if *found == part),
            "{path}: {error:?}"
        );
    }
    for path in ["/many", "/longer", "/nonsense", "/split", "/nothing"] {
        let error = caller.get(&url(path)).unwrap_err();
        assert!(
            matches!(error, FetchError::Failed { .. }),
            "{path}: {error:?}"
        );
    }
    // What all answers have together.
    let mut caller = Caller::new(&[pinned("a.example", port)], &[], LONG);
    let told: Vec<_> = (0..6).map(|_| caller.get(&url("/fits"))).collect();
    assert!(told[..5].iter().all(Result::is_ok), "{told:?}");
    assert!(
        matches!(told[5], Err(FetchError::Budget(_))),
        "{:?}",
        told[5]
    );
}

/// What arrives counts, whatever becomes of it.
#[test]
fn bodies_count_of_answers_that_lead_elsewhere_or_are_too_long() {
    let (port, asked) = serve(|head, _, stream| match head.split(' ').nth(1).unwrap() {
        "/round" => say(stream, "302 Found", "location: /round\r\n", &[b'x'; 9000]),
        _ => say(stream, "200 OK", "", &[b'x'; 10_001]),
    });
    let allow = [pinned("a.example", port)];
    let url = |path: &str| format!("http://a.example:{port}{path}");
    let mut caller = Caller::new(&allow, &[], LONG);
    let error = caller.get(&url("/round")).unwrap_err();
    assert!(matches!(error, FetchError::Budget(_)), "{error:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 6, "five fit into the budget");
    let mut caller = Caller::new(&allow, &[], LONG);
    let errors: Vec<_> = (0..8)
        .map(|_| caller.get(&url("/large")).unwrap_err())
        .collect();
    assert!(
        matches!(errors[0], FetchError::TooLarge { .. }),
        "{errors:?}"
    );
    assert!(matches!(errors[7], FetchError::Budget(_)), "{errors:?}");
}

/// Callers of one group whose server is slow leave places to others.
#[test]
fn a_group_has_some_of_the_places_and_no_more() {
    let (port, asked) = serve(|head, _, stream| {
        if head.starts_with("GET /slow") {
            std::thread::sleep(Duration::from_secs(30));
        }
        say(stream, "200 OK", "", b"x");
    });
    let fetcher = Fetcher::start(4).unwrap();
    let client = client(&[pinned("a.example", port)], &[]);
    let request = |path: &str| {
        let url = format!("http://a.example:{port}{path}");
        FetchRequest::parse("GET", &url, &[], Vec::new(), Redirects::Follow)
    };
    let (slow, fast) = (FetchGroup::new(3), FetchGroup::new(3));
    let open = |group| {
        let (send, replies) = channel();
        let caller = FetchCaller {
            client: &client,
            group,
            account: &Arc::default(),
        };
        (
            fetcher.open(caller, BUDGET, Instant::now() + LONG, send),
            replies,
        )
    };
    let mut slow_callers: Vec<_> = (0..4).map(|_| open(&slow)).collect();
    for (session, _) in &mut slow_callers {
        for id in 0..4 {
            session.begin(id, request("/slow"));
        }
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(
        asked.load(Ordering::SeqCst),
        3,
        "the group has three places"
    );
    let (mut session, replies) = open(&fast);
    session.begin(1, request("/"));
    let reply = replies.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(reply.outcome.is_ok(), "{reply:?}");
    drop(reply);
    // The places of callers that are gone are free again.
    slow_callers.truncate(0);
    let (mut session, replies) = open(&slow);
    session.begin(1, request("/"));
    assert!(replies.recv_timeout(Duration::from_secs(5)).is_ok());
}

#[test]
fn a_caller_has_so_many_requests_and_bytes_and_a_few_at_a_time() {
    let (open, most) = (AtomicUsize::new(0), Arc::<AtomicUsize>::default());
    let seen = Arc::clone(&most);
    let (port, _) = serve(move |_, _, stream| {
        seen.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(5));
        // Before the answer: who has it may ask again at once.
        open.fetch_sub(1, Ordering::SeqCst);
        say(stream, "200 OK", "", b"x");
    });
    let mut caller = Caller::new(&[pinned("a.example", port)], &[], LONG);
    let url = format!("http://a.example:{port}/");
    let error = caller.ask("POST", &url, &[0; 1001]).unwrap_err();
    assert!(matches!(error, FetchError::Budget(_)), "{error:?}");
    for _ in 0..=BUDGET.requests {
        caller.begin("GET", &url, b"");
    }
    let outcomes: Vec<_> = (0..=BUDGET.requests)
        .map(|_| caller.replies.recv_timeout(LONG).unwrap().outcome)
        .collect();
    let refused = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    assert_eq!(refused, 1);
    let most = most.load(Ordering::SeqCst);
    assert!((2..=BUDGET.parallel).contains(&most), "{most} at a time");
}

#[test]
fn who_waits_for_no_answer_any_more_has_let_go_of_its_place() {
    let (port, _) = serve(|head, _, stream| {
        if head.starts_with("GET /slow") {
            std::thread::sleep(Duration::from_secs(30));
        }
        say(stream, "200 OK", "", b"x");
    });
    let mut caller = Caller::new(&[pinned("a.example", port)], &[], LONG);
    let slow = format!("http://a.example:{port}/slow");
    let open: Vec<u32> = (0..BUDGET.parallel)
        .map(|_| caller.begin("GET", &slow, b""))
        .collect();
    std::thread::sleep(Duration::from_millis(100));
    for id in open {
        caller.session.abort(id);
    }
    assert!(caller.get(&format!("http://a.example:{port}/")).is_ok());
    let mut late = Caller::new(
        &[pinned("a.example", port)],
        &[],
        Duration::from_millis(300),
    );
    let begun = Instant::now();
    let error = late.get(&slow).unwrap_err();
    assert!(matches!(error, FetchError::TimedOut { .. }), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

/// A caller of `account`, at a fetcher of its own.
fn open_counted(
    allow: &[String],
    account: &Arc<FetchAccount>,
) -> (Fetcher, FetchSession, Receiver<FetchReply>) {
    let fetcher = Fetcher::start(4).unwrap();
    let (send, replies) = channel();
    let caller = FetchCaller {
        client: &client(allow, &[]),
        group: &FetchGroup::new(4),
        account,
    };
    let session = fetcher.open(caller, BUDGET, Instant::now() + LONG, send);
    (fetcher, session, replies)
}

fn post(url: &str) -> Result<FetchRequest, FetchError> {
    FetchRequest::parse("POST", url, &[], vec![0; 7], Redirects::Follow)
}

/// Clients with policies of their own look names up and check certificates together, and decide apart.
#[test]
fn callers_at_one_fetcher_reach_the_hosts_of_their_own_policies() {
    let (port, asked) = serve(|_, _, stream| say(stream, "200 OK", "", b"x"));
    let fetcher = Fetcher::start(4).unwrap();
    let first = client(&[pinned("a.example", port)], &[]);
    let policy = Policy::new(&[pinned("b.example", port)], &[]).unwrap();
    let second = first.with_policy(Arc::new(policy));
    let group = FetchGroup::new(4);
    let ask = |client: &FetchClient, host: &str| {
        let (send, replies) = channel();
        let account = Arc::<FetchAccount>::default();
        let caller = FetchCaller {
            client,
            group: &group,
            account: &account,
        };
        let mut session = fetcher.open(caller, BUDGET, Instant::now() + LONG, send);
        session.begin(1, post(&format!("http://{host}:{port}/")));
        let outcome = replies.recv_timeout(LONG).unwrap().outcome;
        let rule = account.take_news(false).decisions[0].rule.clone();
        (outcome.is_ok(), rule)
    };
    let rule = |host| Some(pinned(host, port));
    assert_eq!(ask(&first, "a.example"), (true, rule("a.example")));
    assert_eq!(ask(&second, "b.example"), (true, rule("b.example")));
    assert_eq!(ask(&first, "b.example"), (false, None));
    assert_eq!(ask(&second, "a.example"), (false, None));
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[test]
fn a_request_that_is_given_up_is_counted_with_what_it_sent() {
    let (tell, arrived) = channel();
    let (port, _) = serve(move |_, body, _| {
        let _ = tell.send(body.len());
        std::thread::sleep(Duration::from_secs(30));
    });
    for is_aborted in [true, false] {
        let account = Arc::<FetchAccount>::default();
        let (fetcher, mut session, _replies) = open_counted(&[pinned("a.example", port)], &account);
        session.begin(1, post(&format!("http://a.example:{port}/")));
        assert_eq!(arrived.recv_timeout(LONG).unwrap(), 7);
        let news = account.take_news(false);
        assert_eq!((news.allowed, news.sent_bytes), (0, 7));
        if is_aborted {
            session.abort(1);
        }
        drop(session);
        // It has ended when its thread has.
        drop(fetcher);
        let news = account.take_news(false);
        assert_eq!((news.allowed, news.failed, news.received_bytes), (1, 0, 0));
        assert_eq!(news.decisions[0].host.as_deref(), Some("a.example"));
    }
}

#[test]
fn bytes_are_counted_as_they_pass_whatever_comes_of_it() {
    let (port, _) = serve(|_, _, stream| say(stream, "200 OK", "", &[b'x'; 10_001]));
    // Nobody listens there.
    let allow = [pinned("a.example", port), pinned("gone.example", 1)];
    let account = Arc::<FetchAccount>::default();
    let (_fetcher, mut session, replies) = open_counted(&allow, &account);
    for (id, url) in [
        (1, format!("http://a.example:{port}/")),
        (2, format!("http://b.example:{port}/")),
        (3, "http://gone.example:1/".to_owned()),
    ] {
        session.begin(id, post(&url));
        let reply = replies.recv_timeout(LONG).unwrap();
        assert!(reply.outcome.is_err(), "{reply:?}");
    }
    let news = account.take_news(false);
    assert_eq!((news.sent_bytes, news.received_bytes), (7, 10_001));
    assert_eq!((news.allowed, news.failed), (1, 1));
    assert_eq!(news.refused, [("unlisted".to_owned(), 1)].into());
}
