//! Named sandboxes from start to kill, as a script sees them. With the backend `host`, so that the
//! tests run on every machine; the suites under `tests/` cover the other backends.

use serde_json::{Value, json};
use testkit::{Home, Ran};

fn started(home: &Home, name: &str) {
    home.glovebox(["start", "-q", "--backend", "host", name])
        .run()
        .expect_code(0);
}

fn object(ran: &Ran) -> Value {
    let value: Value =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}\n{ran}"));
    assert_eq!(value["version"], 1, "{ran}");
    value
}

#[test]
fn start_exec_list_kill() {
    let home = Home::new();
    started(&home, "work");
    let again = home
        .glovebox(["start", "--json", "--backend", "host", "work"])
        .run()
        .expect_code(0);
    assert_eq!(object(&again)["data"]["started"], "existing");

    let ran = home
        .glovebox(["exec", "work", "sh", "-c", "echo out; echo err >&2; exit 3"])
        .run()
        .expect_code(3);
    assert_eq!((ran.out().as_str(), ran.err().as_str()), ("out\n", "err\n"));
    let list = object(&home.line("list --json").run().expect_code(0));
    assert_eq!(list["data"]["sandboxes"][0]["name"], "work");
    assert_eq!(list["data"]["sandboxes"][0]["state"], "ready");
    assert!(home.line("ls").run().expect_code(0).out().contains("work"));
    home.line("info work").run().expect_code(0);

    let killed = object(&home.line("kill --json work never-was").run().expect_code(0));
    assert_eq!(killed["data"]["killed"][0]["was"], "ready");
    assert_eq!(killed["data"]["killed"][1]["was"], "gone");
    assert_eq!(
        object(&home.line("list --json").run())["data"]["sandboxes"],
        json!([])
    );
}

#[test]
fn exec_reads_input_only_when_asked() {
    let home = Home::new();
    started(&home, "work");
    let ran = home
        .line("exec work cat")
        .input("unasked")
        .run()
        .expect_code(0);
    assert_eq!(ran.out(), "");
    let ran = home
        .line("exec --stdin work cat")
        .input("asked")
        .run()
        .expect_code(0);
    assert_eq!(ran.out(), "asked");
}

#[test]
fn exec_as_json_tells_everything_apart() {
    let home = Home::new();
    started(&home, "work");
    let exec = |args: &[&str]| home.glovebox(["exec", "--json"]).args(args).run();

    let ran = exec(&["work", "printf", "a\\377"]).expect_code(0);
    let value = object(&ran);
    assert_eq!(value["success"], true);
    assert_eq!(value["error"], Value::Null);
    assert_eq!(value["data"]["stdout"], "a\u{fffd}");
    assert_eq!(value["data"]["stdout_b64"], "Yf8=");
    assert_eq!(value["data"]["command"], json!(["printf", "a\\377"]));
    assert_eq!(value["data"]["exit_code"], 0);

    let value = object(&exec(&["work", "sh", "-c", "exit 3"]).expect_code(3));
    assert_eq!(
        (&value["success"], &value["error"]),
        (&json!(false), &Value::Null)
    );

    let value = object(&exec(&["work", "sh", "-c", "kill -9 $$"]).expect_code(137));
    assert_eq!(
        (&value["data"]["exit_code"], &value["data"]["signal"]),
        (&Value::Null, &json!(9))
    );

    let value = object(&exec(&["--timeout", "200ms", "work", "sleep", "60"]).expect_code(124));
    assert_eq!(value["data"]["timed_out"], true);

    let value = object(&exec(&["work", "no-such-command-anywhere"]).expect_code(127));
    assert_eq!(value["error"]["code"], "command-not-found");
    let value = object(&exec(&["missing", "true"]).expect_code(125));
    assert_eq!(value["error"]["code"], "sandbox-not-found");
    assert!(value["error"]["remedy"].is_string());
}

#[test]
fn a_flood_is_cut_in_json_and_counted_exactly() {
    let home = Home::new();
    started(&home, "work");
    let ran = home
        .glovebox([
            "exec",
            "--json",
            "work",
            "head",
            "-c",
            "9000000",
            "/dev/zero",
        ])
        .run()
        .expect_code(0);
    let value = object(&ran);
    assert_eq!(value["data"]["truncated"], true);
    assert_eq!(value["data"]["stdout_bytes"], 9_000_000);
    assert_eq!(value["data"]["stdout"].as_str().unwrap().len(), 4 << 20);
}

#[test]
fn streamed_json_is_one_object_per_line() {
    let home = Home::new();
    started(&home, "work");
    let script = "printf 'ä'; echo; echo err >&2; exit 5";
    let ran = home
        .glovebox(["exec", "--json", "--stream", "work", "sh", "-c", script])
        .run()
        .expect_code(5);
    let lines: Vec<Value> = ran
        .out()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let text: String = lines
        .iter()
        .filter(|line| line["event"] == "stdout")
        .filter_map(|line| line["data"].as_str())
        .collect();
    assert_eq!(text, "ä\n");
    assert_eq!(lines.last().unwrap()["data"]["exit_code"], 5);
}

#[test]
fn logs_show_what_jobs_wrote() {
    let home = Home::new();
    started(&home, "work");
    home.glovebox(["exec", "work", "sh", "-c", "echo out; echo err >&2"])
        .run()
        .expect_code(0);
    let jobs = object(&home.line("logs --json work").run().expect_code(0));
    assert_eq!(jobs["data"]["jobs"][0]["state"], "ended");
    let ran = home.line("logs work 1").run().expect_code(0);
    assert_eq!((ran.out().as_str(), ran.err().as_str()), ("out\n", "err\n"));
    let ran = home.line("logs --stderr work 1").run().expect_code(0);
    assert_eq!((ran.out().as_str(), ran.err().as_str()), ("", "err\n"));
    let ran = home.line("logs --follow work 1").run().expect_code(0);
    assert_eq!(ran.out(), "out\n");
    home.line("logs work 99").run().expect_code(6);
}

#[test]
fn run_keeps_what_it_is_told_to_keep() {
    let home = Home::new();
    home.line("run -q --backend host --keep kept -- true")
        .run()
        .expect_code(0);
    home.line("exec kept true").run().expect_code(0);
    let ran = home
        .line("run -q --backend host --keep kept -- true")
        .run()
        .expect_code(125);
    insta::assert_snapshot!(ran.failure(home.root()), @"
    error: there is a sandbox `kept` already
    hint: run in it with `glovebox exec kept -- COMMAND`, or choose another name
    ");
    home.line("kill kept").run().expect_code(0);
}

#[test]
fn the_number_of_sandboxes_is_limited() {
    let home = Home::new();
    started(&home, "one");
    let ran = home
        .line("start --backend host two")
        .env("GLOVEBOX_MAX_SANDBOXES", "1")
        .run();
    assert_eq!(ran.code, 5, "{ran}");
}
