//! How bundles come to a server: sent, signed, fetched; and what is refused on the way.

use super::*;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

/// Everything that is wrong with an upload is told at once, and nothing of it is kept.
#[test]
fn a_wrong_upload_is_refused_with_every_error() {
    let person = Person::myself();
    let server = example_server(&person, "");
    let admin = server.admin();
    let two = EXAMPLE
        .replace(
            "gateway(\"gpt-4\")",
            "process.env.X ? gateway(\"a\") : gateway(\"b\")",
        )
        .replace("system: \"You are helpful\",", "");
    let refused = put(&admin, &two).expect(422).json();
    let problems = refused["error"]["details"]["problems"].as_array().unwrap();
    let codes: Vec<&str> = problems
        .iter()
        .map(|one| one["code"].as_str().unwrap())
        .collect();
    assert!(
        codes.contains(&"E_CONDITIONAL") && codes.contains(&"E_FIELD_MISSING"),
        "{codes:?}"
    );
    assert!(
        problems
            .iter()
            .all(|one| one["line"].as_u64() > Some(0) && one["hint"].is_string())
    );
    // Names that no model can call, and schemas that lead elsewhere or round.
    for tools in [
        "{ \"a b\": tool({ description: \"t\", inputSchema: z.object({}), execute: () => 1 }) }",
        "{ a: tool({ description: \"t\", inputSchema: jsonSchema({ $ref: \"http://127.0.0.1:1/x\" }), execute: () => 1 }) }",
        "{ a: tool({ description: \"t\", inputSchema: jsonSchema({ $ref: \"#\" }), execute: () => 1 }) }",
    ] {
        let text = EXAMPLE.replace("tools: { myTool }", &format!("tools: {tools}"));
        let text = format!("const {{ tool, jsonSchema }} = require(\"ai\");\n{text}");
        let refused = put(&admin, &text).expect(422);
        assert!(
            refused.json()["error"]["details"].is_object(),
            "{refused:?}"
        );
    }
    put(&admin, "").expect(422);
    put(&admin, "export default 1").expect(422);
    admin
        .ask("PUT", "/api/bundles", &[], b"\xff\xfe")
        .expect(400);
    admin
        .ask("PUT", "/api/bundles", &[], &vec![b' '; (8 << 20) + 1])
        .expect(413);
    admin
        .ask("PUT", "/api/bundles?language=python", &[], b"1")
        .expect(400);
    let deep = format!("export default {}", "[".repeat(200_000));
    put(&admin, &deep).expect(422);
    assert_eq!(
        admin.get("/api/bundles").expect(200).json()["bundles"],
        json!([])
    );
    server.anybody().get("/api/bundles").expect(401);
}

/// With keys of the operator only what they have signed is taken.
#[test]
fn only_signed_bundles_are_taken_where_there_are_keys() {
    let person = Person::myself();
    let key = "ops=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    let server = example_server(&person, &format!("--bundle-key {key}"));
    let admin = server.admin();
    put(&admin, EXAMPLE).expect(403);
    let forged = [("glovebox-signature", "AAAA")];
    admin
        .ask("PUT", "/api/bundles", &forged, EXAMPLE.as_bytes())
        .expect(403);
    assert_eq!(admin.get("/api/tool").json()["needs_signature"], true);
    // A signature of RFC 8032 (test 1: the empty text) holds for its text alone, which is no bundle.
    let signature =
        "5VZDAMNgrHKQhuLMgG6CioSHfx645dl02HPgZSJJAVVfuIIVkKM7rMYeOXAc+bRr0lv18FlbviRlUUFDjnoQCw==";
    let signed = [("glovebox-signature", signature)];
    admin.ask("PUT", "/api/bundles", &signed, b"").expect(422);
    admin
        .ask("PUT", "/api/bundles", &signed, EXAMPLE.as_bytes())
        .expect(403);
}

/// Addresses of bundles: only listed hosts, no other scheme, no private address that was not listed as one.
#[test]
fn a_bundle_is_fetched_from_nowhere_that_is_not_listed() {
    let person = Person::myself();
    let server = example_server(&person, "--bundle-host cdn.example.test");
    let admin = server.admin();
    for (url, status) in [
        ("https://127.0.0.1/x.js", 403),
        ("https://169.254.169.254/latest/meta-data", 403),
        ("https://[::1]/x.js", 403),
        ("https://2130706433/x.js", 403),
        ("https://example.com/x.js", 403),
        ("https://localhost/x.js", 403),
        ("http://cdn.example.test/x.js", 400),
        ("file:///etc/passwd", 400),
        ("https://user:pw@cdn.example.test/x.js", 400),
        ("https://cdn.example.test:8443/x.js", 403),
    ] {
        let answer = admin.post("/api/execute", &json!({ "bundleUrl": url, "input": "x" }));
        assert_eq!(answer.status, status, "{url}: {answer:?}");
    }
}

/// TLS of a server by that name, and its certificate in PEM.
pub(super) fn tls_of(name: &str) -> (rustls::ServerConfig, String) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (config, made.cert.pem())
}

/// A server of files over TLS: what it answers, whole, to every request.
pub(super) fn files_over_tls(
    config: rustls::ServerConfig,
    answer: impl Fn(&str) -> Vec<u8> + Send + 'static,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tls = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(tls, stream);
            let mut head = String::new();
            let mut piece = [0; 1024];
            while !head.contains("\r\n\r\n") {
                match stream.read(&mut piece) {
                    Ok(count) if count > 0 => {
                        head.push_str(&String::from_utf8_lossy(&piece[..count]));
                    }
                    _ => break,
                }
            }
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let _ = stream.write_all(&answer(&path));
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    port
}

/// A host that the operator has listed with its private address, and with a certificate of the operator's own.
#[test]
fn a_bundle_is_fetched_from_a_listed_host_as_it_is_pinned_and_no_further() {
    let person = Person::myself();
    let (config, certificate) = tls_of("cdn.example.test");
    let ca = person.write("ca.pem", certificate);
    let port = files_over_tls(config, |path| {
        let whole = |body: &str| {
            format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        match path {
            "/agents.js" => whole(EXAMPLE),
            "/large.js" => whole(&" ".repeat((8 << 20) + 1)),
            "/away.js" => {
                "HTTP/1.1 302 Found\r\nlocation: /agents.js\r\ncontent-length: 0\r\n\r\n".to_owned()
            }
            _ => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
        }
        .into_bytes()
    });
    let listed = format!("--bundle-host cdn.example.test:{port}=127.0.0.1");
    let server = example_server(&person, &format!("{listed} --bundle-ca {}", ca.display()));
    let admin = server.admin();
    let url = |path: &str| format!("https://cdn.example.test:{port}{path}");
    let (_, events) = execute(
        &admin,
        &json!({ "bundleUrl": url("/agents.js"), "input": "x" }),
    );
    assert_eq!(
        of_type(&events, "ended")[0]["ending"],
        "completed",
        "{events:?}"
    );
    let hash = admin.get("/api/bundles").json()["bundles"][0]["hash"]
        .as_str()
        .unwrap()
        .to_owned();
    let pinned = json!({ "bundleUrl": url("/none.js"), "bundleSha256": hash, "input": "x" });
    execute(&admin, &pinned);
    for (path, pin, status) in [
        ("/agents.js", Some("0".repeat(64)), 409),
        ("/large.js", None, 413),
        ("/away.js", None, 403),
        ("/none.js", None, 503),
    ] {
        let body = json!({ "bundleUrl": url(path), "bundleSha256": pin, "input": "x" });
        assert_eq!(admin.post("/api/execute", &body).status, status, "{path}");
    }
    // The same host without its certificate is not believed.
    let server = example_server(&person, &listed);
    let body = json!({ "bundleUrl": url("/agents.js"), "input": "x" });
    server.admin().post("/api/execute", &body).expect(503);
}
