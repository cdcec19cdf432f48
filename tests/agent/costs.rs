//! What a run costs, where that is known.

use super::{agent, complaint};
use serde_json::Value;
use testkit::{ModelServer, Person, Ran, Step};

fn last_line(ran: &Ran) -> Value {
    serde_json::from_str(ran.out().lines().last().unwrap()).unwrap()
}

#[test]
fn a_price_is_known_at_the_provider_itself_and_nowhere_else() {
    let person = Person::myself();
    let dry = |model: &str| {
        let args = [
            "agent",
            "--sandbox",
            "--dry-run",
            "--json",
            "--model",
            model,
            "x",
        ];
        let ran = person
            .glovebox(args)
            .env("OPENAI_API_KEY", "sk-not-a-key")
            .run()
            .expect_code(0);
        last_line(&ran)["data"].clone()
    };
    let known = dry("openai/gpt-5");
    assert!(known["price"].as_str().unwrap().contains('/'), "{known}");
    assert!(known["window"].as_u64().unwrap() > 200_000, "{known}");
    let unknown = dry("openai/gpt-of-my-own");
    assert_eq!(unknown["price"], "unknown");
    assert_eq!(unknown["window"], 200_000);

    let server = ModelServer::start([Step::text("Done.")]);
    let said = ["openai/gpt-5", "openai/scripted"].map(|model| {
        let args = ["--sandbox", "--max-cost", "1", "--model", model];
        let ran = person
            .glovebox(["agent"].into_iter().chain(args).chain(["x"]))
            .env("OPENAI_BASE_URL", server.url())
            .run()
            .expect_code(2);
        ran.failure(person.place().root())
    });
    insta::assert_snapshot!(said.join("\n"), @"
    error: what the agent spends cannot be limited: what openai/gpt-5 costs is unknown at that server
    hint: give the price of a million tokens with `--price IN/OUT`, or agent.price
    error: what the agent spends cannot be limited: what openai/scripted costs is unknown at that server
    hint: give the price of a million tokens with `--price IN/OUT`, or agent.price
    ");
    assert!(server.asked().is_empty());
    assert!(person.sandboxes().is_empty());

    let args = ["--sandbox", "--apply", "never"];
    let ran = agent(&person, &server, args, "x").run().expect_code(0);
    let spent = ran.said("tokens", person.place().root());
    insta::assert_snapshot!(spent, @"glovebox: done after 1 turn, 110 tokens, cost unknown");
    assert!(!ran.err().contains('$'), "{ran}");
}

#[test]
fn what_was_spent_is_told_and_limited() {
    let person = Person::myself();
    let call = || Step::call("Bash", r#"{"command":"date +%N"}"#);
    // Each answer has 100 tokens in and 10 out.
    let server = ModelServer::start([call(), call(), Step::text("Done.")]);
    let args = [
        "--sandbox",
        "--apply",
        "never",
        "--json",
        "--price",
        "10/20",
    ];
    let ran = agent(&person, &server, args, "x").run().expect_code(0);
    let cost = last_line(&ran)["data"]["cost_usd"].as_f64().unwrap();
    assert!((cost - 3.0 * 0.0012).abs() < 1e-9, "{cost}");

    let server = ModelServer::start([call(), call(), Step::text("Done.")]);
    let args = [
        "--sandbox",
        "--apply",
        "never",
        "--price",
        "10/20",
        "--max-cost",
        "0.002",
    ];
    let ran = agent(&person, &server, args, "x").run().expect_code(5);
    let spent = ran.said("tokens", person.place().root());
    insta::assert_snapshot!(spent, @"glovebox: stopped by a limit after 2 turns, 220 tokens, $0.0024");
    insta::assert_snapshot!(complaint(&ran.err()), @"
    error: $0.0024 were spent
    hint: raise the limit with `--max-cost`, or in glovebox.toml with agent.max_cost
    ");
    assert_eq!(server.steps_left(), 1);
}

#[test]
fn how_much_a_model_can_be_told_is_asked_of_its_own_server() {
    let person = Person::myself();
    let props = r#"{"default_generation_settings":{"n_ctx":6000}}"#;
    let models = r#"{"data":[{"id":"scripted","max_model_len":6000}]}"#;
    let show = r#"{"model_info":{"x.context_length":6000}}"#;
    // More than nine tenths of 6000 tokens, and far less than the usual window.
    let steps = || {
        [
            Step::call("Bash", r#"{"command":"seq 10000 14000"}"#),
            Step::text("SUMMARY"),
            Step::text("Done."),
        ]
    };
    let run = |server: &ModelServer, args: &[&str]| {
        let all = ["--sandbox", "--apply", "never"];
        let all = all.into_iter().chain(args.iter().copied());
        let ran = agent(&person, server, all, "x").run().expect_code(0);
        ran.err().contains("a summary stands for")
    };
    for (path, body) in [
        ("/props", props),
        ("/v1/models", models),
        ("/api/show", show),
    ] {
        let server = ModelServer::start(steps()).telling(path, body);
        assert!(run(&server, &[]), "{path}");
    }
    // The user knows better, and without a word of anybody it is the usual size.
    let server = ModelServer::start([steps()[0].clone(), Step::text("Done.")]);
    let server = server.telling("/props", props);
    assert!(!run(&server, &["--window", "50000"]));
    let server = ModelServer::start([steps()[0].clone(), Step::text("Done.")]);
    assert!(!run(&server, &[]));

    // One that says nothing is not waited for.
    let begin = std::time::Instant::now();
    let server = ModelServer::start([Step::text("Done.")]).silent_about("/props");
    assert!(!run(&server, &[]));
    let took = begin.elapsed();
    assert!(took.as_secs() < 20, "{took:?}");
    person.assert_nothing_lives();
}
