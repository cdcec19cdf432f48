//! The same over HTTP/2, which both sides speak when the host chooses it.

use super::{AUTHORITY, Place, assert_hidden};
use crate::without_network::has;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use testkit::{Person, skip};

/// A server of HTTP/2 in a process of its own; it ends with this.
struct Http2 {
    child: Child,
    port: u16,
}

impl Http2 {
    fn start(person: &Person) -> Self {
        let (certificate, key) = AUTHORITY.server_pems();
        let script = "const http2 = require('http2'); let pems = '';\n\
             process.stdin.on('data', d => pems += d).on('end', () => {\n\
               const [cert, key] = pems.split('\\0');\n\
               const server = http2.createSecureServer({ cert, key });\n\
               server.on('stream', (stream, headers) => {\n\
                 stream.respond({ ':status': 200, 'x-told': headers.authorization }, { waitForTrailers: true });\n\
                 stream.on('wantTrailers', () => stream.sendTrailers({ 'x-end': headers.authorization }));\n\
                 stream.end(JSON.stringify(headers) + '\\n');\n\
               });\n\
               server.listen(0, '127.0.0.1', () => console.log(server.address().port));\n\
             });\n";
        let mut child = person
            .program("node")
            .args(["-e", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin
            .write_all(format!("{certificate}\0{key}").as_bytes())
            .unwrap();
        drop(stdin);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line.trim().parse().unwrap();
        Self { child, port }
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn http2_is_spoken_on_both_sides() {
    if !has("node") || !has("curl") {
        skip!("node and curl are not both installed");
    }
    Person::each(|person| {
        let place = Place::new(person);
        let server = Http2::start(person);
        let url = format!("https://api.test:{}/path?q=1", server.port);
        let run = |command: &[&str]| {
            let port = server.port;
            let (allow, secret) = (
                format!("api.test:{port}=127.0.0.1"),
                format!("API_TOKEN=env:MY_TOKEN@api.test:{port}"),
            );
            let words = [
                "run", "-q", "--net", "egress", "--allow", &allow, "--secret", &secret, "--",
            ];
            place
                .adjusted(person.glovebox(words.iter().chain(command)))
                .run()
        };
        let script = format!(
            "curl -sS --http2 -w '%{{http_version}}\\n' -H \"Authorization: Bearer $API_TOKEN\" {url} {url}"
        );
        let ran = run(&["sh", "-c", &script]).expect_code(0);
        assert_eq!(ran.out().matches("}\n2\n").count(), 2, "{ran}");
        assert!(
            ran.out()
                .contains("\"authorization\":\"Bearer glovebox-secret-API_TOKEN-")
                && ran.out().contains("\":path\":\"/path?q=1\"")
                && ran
                    .out()
                    .contains(&format!("\":authority\":\"api.test:{}\"", server.port)),
            "{ran}"
        );
        assert_hidden(&ran.out(), "an answer of HTTP/2");
        // Many requests at once, and what comes behind their answers.
        let client = "const c = require('http2').connect(new URL(process.argv[1]).origin); let left = 50;\n\
             c.on('error', e => { console.log(e.message); process.exit(1) });\n\
             for (let n = 0; n < 50; n++) {\n\
               const r = c.request({ ':path': '/' + n, authorization: 'Bearer ' + process.env.API_TOKEN });\n\
               r.on('response', h => console.log(h[':status'], h['x-told']));\n\
               r.on('trailers', t => console.log('trailer', t['x-end']));\n\
               r.on('data', d => console.log(String(d))).on('end', () => { if (--left == 0) c.close() });\n\
             }\n";
        let ran = run(&["node", "-e", client, &url]).expect_code(0);
        assert_eq!(
            ran.out().matches("200 Bearer glovebox-secret-").count(),
            50,
            "{ran}"
        );
        assert_eq!(
            ran.out().matches("trailer Bearer glovebox-secret-").count(),
            50,
            "{ran}"
        );
        assert_hidden(&ran.out(), "trailers");
        // A request for another host on the same connection.
        let other = "const c = require('http2').connect(new URL(process.argv[1]).origin);\n\
             const r = c.request({ ':path': '/', ':authority': 'other.test' });\n\
             r.on('response', h => console.log(h[':status'])).on('end', () => { c.close(); process.exitCode = 1 });\n\
             r.resume();\n";
        let ran = run(&["node", "-e", other, &url]);
        assert!(
            ran.out() == "403\n" && ran.err().contains("other.test"),
            "{ran}"
        );
    });
}
