//! Placeholders in the address and in the body of a request: they leave as they are, and a line says so.

use super::http2::Http2;
use super::{Place, assert_hidden};
use crate::without_network::has;
use testkit::{Person, Ran, skip};

/// The lines of Glovebox about the secret.
fn lines(place: &Place<'_>, ran: &Ran) -> String {
    let told = place.told(ran);
    let about = told.lines().filter(|line| line.contains("placeholder"));
    about.collect::<Vec<_>>().join("\n")
}

#[test]
fn placeholder_outside_of_headers_is_told() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let place = Place::new(person);
        let (echo, keyed) = (place.url("/echo"), place.url("/keyed"));
        let run = |script: String| place.run(&script);

        // The command has succeeded: curl takes any status for an answer.
        let ran = run(format!(
            "curl -sS \"{echo}?key=$API_TOKEN\" \"{echo}?again=$API_TOKEN\""
        ));
        let ran = ran.expect_code(0);
        insta::assert_snapshot!(lines(&place, &ran), @"glovebox: the placeholder of the secret `API_TOKEN` stood in the address of a request to `api.test:[API PORT]` and was sent as it is: send it in a header: values are filled in there only");
        assert_hidden(&place.api.take_seen().concat(), "an address");

        let ran = run(format!("curl -sS \"{echo}/$API_TOKEN/x\"; exit 3")).expect_code(3);
        assert!(lines(&place, &ran).contains("address"), "{ran}");

        // Also in the middle of a body that comes in pieces.
        let body = format!(
            "{{ head -c 100000 /dev/zero; echo $API_TOKEN; }} | curl -sS --data-binary @- {keyed}"
        );
        let ran = run(body).expect_code(0);
        insta::assert_snapshot!(lines(&place, &ran), @"glovebox: the placeholder of the secret `API_TOKEN` stood in the body of a request to `api.test:[API PORT]` and was sent as it is; the host did not let the request in: send it in a header: values are filled in there only");

        // Twins: the secret in a header, a body that is let in, and one that is not without any placeholder.
        for script in [
            format!("curl -sS -H \"X-Key: $API_TOKEN\" --data \"$API_TOKEN\" {keyed}"),
            format!("curl -sS --data \"$(env)\" {echo}"),
            format!("curl -sS --data glovebox-secret-API_TOKEN- {keyed}?key=glovebox-secret-"),
        ] {
            let ran = run(script.clone()).expect_code(0);
            assert_eq!(lines(&place, &ran), "", "{script}: {ran}");
        }
    });
}

#[test]
fn placeholder_in_an_address_of_http2_is_told() {
    if !has("node") || !has("curl") {
        skip!("node and curl are not both installed");
    }
    let person = Person::myself();
    let place = Place::new(&person);
    let server = Http2::start(&person);
    let run = |what: &str| {
        let url = format!("https://api.test:{}", server.port);
        let script = format!(
            "curl -sS --http2 -w '%{{http_version}}\\n' {}",
            what.replace("URL", &url)
        );
        let ran = server
            .call(&place, &["run", "-q"], &["sh", "-c", &script])
            .run();
        let ran = ran.expect_code(0);
        assert!(ran.out().ends_with("2\n"), "{ran}");
        lines(&place, &ran)
    };
    assert!(run("\"URL/path?key=$API_TOKEN\"").contains("address"));
    assert!(run("--data \"x=$API_TOKEN\" URL/keyed").contains("body"));
    assert_eq!(run("-H \"X-Key: $API_TOKEN\" URL/keyed"), "");
}
