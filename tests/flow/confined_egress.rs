//! The backend `confined` with `--net egress`: listed hosts are reached as natively, nothing else
//! is, and the listener of the way out serves nobody but the sandbox.

use crate::confined::{can_start, each};
use crate::egress::Server;
use crate::without_network::has;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::{Person, Ran, skip};

/// Runs a script that reaches `server` as `listed.test`. `$PORT` is the server's port.
fn run(person: &Person, server: &Server, script: &str) -> Ran {
    let rule = server.rule("listed.test");
    let flags = format!(
        "run --quiet --backend confined --no-toolchains --apply never --net egress --allow {rule}"
    );
    let script = format!("PORT={}\n{script}", server.port);
    person.script(&flags, &script).run()
}

#[test]
fn listed_hosts_are_reached_by_name_and_by_the_proxy_and_others_are_refused_in_words() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    each(|person| {
        let server = Server::http();
        let script = "curl -sS -m9 http://listed.test:$PORT/a; \
            curl -sS -m9 -x $https_proxy http://listed.test:$PORT/b; \
            curl -sS -m9 --proxytunnel -x $https_proxy http://listed.test:$PORT/c";
        let ran = run(person, &server, script).expect_code(0);
        assert_eq!(ran.out(), "hello\nhello\nhello\n", "{ran}");
        assert_eq!(server.brought(3).len(), 3);

        let other = Server::http();
        let script = format!(
            "curl -sS -m9 http://other.test:{0}/; curl -sS -m9 -x $https_proxy http://other.test:{0}/ -o x -w '%{{http_code}}\\n'; \
             curl -sS -m9 http://127.0.0.1:{0}/; curl -sS -m9 http://localhost:{0}/; \
             curl -sS -m9 http://10.9.8.7/; curl -sS -m9 http://169.254.169.254/; \
             curl -sS -m9 --noproxy '' -x $https_proxy http://127.0.0.1:{0}/ -o x -w '%{{http_code}}\\n'; false",
            other.port
        );
        let ran = run(person, &server, &script).expect_code(1);
        assert_eq!(ran.out(), "403\n403\n", "{ran}");
        assert!(other.seen.lock().unwrap().is_empty());
        let said = ran.err();
        for host in ["other.test", "10.9.8.7", "169.254.169.254"] {
            assert!(said.contains(host), "{host}: {said}");
        }
    });
}

#[test]
fn servers_inside_work_beside_the_way_out() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    each(|person| {
        let server = Server::http();
        let script = "python3 -c '\n\
            import socket, threading\n\
            s = socket.create_server((\"127.0.0.1\", 0))\n\
            threading.Thread(target=lambda: s.accept()[0].sendall(b\"own\"), daemon=True).start()\n\
            print(socket.create_connection((\"127.0.0.1\", s.getsockname()[1])).recv(9).decode())\n\
            try:\n socket.socket(socket.AF_INET6).connect((\"2001:db8::1\", 80))\n\
            except OSError as error: print(error.errno)\n\
            c = socket.socket(); c.setblocking(False)\n\
            print(c.connect_ex((\"198.18.0.1\", 808)))'";
        let ran = run(person, &server, script).expect_code(0);
        assert_eq!(ran.out(), "own\n101\n115\n", "{ran}");
    });
}

/// Every process of the machine can connect to the listener of the way out, and is not served.
#[test]
fn processes_of_the_machine_do_not_get_through_a_sandboxs_way_out() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    each(|person| {
        let server = Server::http();
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let request = format!(
            "GET http://listed.test:{0}/intruder HTTP/1.1\r\nHost: listed.test:{0}\r\n\r\n",
            server.port
        );
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                for (address, port) in ways_out() {
                    let address = SocketAddr::from((address, port));
                    let wait = Duration::from_millis(200);
                    let Ok(mut stream) = TcpStream::connect_timeout(&address, wait) else {
                        continue;
                    };
                    let _ = stream.set_read_timeout(Some(wait));
                    let _ = stream.write_all(request.as_bytes());
                    let mut answer = [0; 64];
                    // Other sandboxes have servers there that answer.
                    let _ = stream.read(&mut answer);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let script = "for i in 1 2 3 4 5 6 7 8 9 10; do curl -sS -m9 -x $https_proxy http://listed.test:$PORT/$i; sleep 0.1; done";
        let ran = run(person, &server, script).expect_code(0);
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        assert_eq!(ran.out(), "hello\n".repeat(10), "{ran}");
        let brought = server.brought(10);
        assert!(!brought.iter().any(|head| head.contains("intruder")));
    });
}

/// Lists where the ways out of all sandboxes of this machine listen.
fn ways_out() -> Vec<(Ipv4Addr, u16)> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let lines = table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (local, state) = (fields.nth(1)?, fields.nth(1)?);
        let (address, port) = local.split_once(':')?;
        let address = u32::from_str_radix(address, 16).ok()?.to_ne_bytes();
        let port = u16::from_str_radix(port, 16).ok()?;
        // The third of the four addresses of each sandbox.
        let is_ours = state == "0A" && address[..2] == [127, 64] && address[3] % 4 == 3;
        is_ours.then_some((Ipv4Addr::from(address), port))
    });
    lines.collect()
}

#[test]
fn npm_installs_from_a_listed_registry() {
    if !has("npm") {
        skip!("npm is not installed");
    }
    crate::egress_clients::npm_registry(|server| {
        Person::each(|person| {
            if !can_start(person) {
                return;
            }
            let script = "mkdir n && cd n && npm install --no-audit --no-fund --loglevel error \
                --registry http://listed.test:$PORT/ pad >&2 && node -p \"require('pad')\"";
            let ran = run(person, server, script).expect_code(0);
            assert_eq!(ran.out(), "padded\n", "{ran}");
        });
    });
}
