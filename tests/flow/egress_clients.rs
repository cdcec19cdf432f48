//! The programs that people use, in a network of listed hosts: each fetches what a server of the test has, and is told
//! of the host at once when it is not listed.

use crate::egress::Server;
use crate::projects::rust_tools;
use crate::without_network::{AT_ONCE, has};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use testkit::{Person, Ran, skip};

type Files = BTreeMap<String, Vec<u8>>;

/// A server of these files, by path. In texts `@AT@` becomes what the client calls the server.
fn files_server(files: Files) -> Server {
    Server::start(move |mut stream, bytes| {
        let mut part = [0; 4096];
        while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut part) {
                Ok(length @ 1..) => bytes.extend_from_slice(&part[..length]),
                _ => return,
            }
        }
        let head = String::from_utf8_lossy(bytes);
        let path = head.split(' ').nth(1).unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default();
        let host = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("host").then(|| value.trim())
        });
        let (status, body) = match files.get(path) {
            Some(body) => match std::str::from_utf8(body) {
                Ok(text) => (
                    "200 OK",
                    text.replace("@AT@", host.unwrap_or_default()).into_bytes(),
                ),
                Err(_) => ("200 OK", body.clone()),
            },
            None => ("404 Not Found", b"no such file\n".to_vec()),
        };
        let kind = if path.ends_with('/') {
            "text/html"
        } else {
            "application/octet-stream"
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all(answer.as_bytes());
        if !head.starts_with("HEAD ") {
            let _ = stream.write_all(&body);
        }
    })
}

/// Runs `script` in a sandbox that reaches the server as `name`, then in one that does not. `$AT` is `NAME:PORT`.
fn with_and_without(person: &Person, server: &Server, name: &str, script: &str) -> Ran {
    with_and_without_by(server, name, script, |words| person.glovebox(words).run())
}

/// As [`with_and_without`], where `glovebox` runs it with these words.
fn with_and_without_by(
    server: &Server,
    name: &str,
    script: &str,
    glovebox: impl Fn(&[String]) -> Ran,
) -> Ran {
    let at = format!("AT={name}:{}", server.port);
    let run = |rules: &str| {
        let flags = format!("run -q --net egress {rules}");
        let flags = flags.split_whitespace().chain(["--env", &at]);
        let words = flags.chain(["--", "sh", "-c", script]);
        glovebox(&words.map(str::to_owned).collect::<Vec<_>>())
    };
    let begun = Instant::now();
    let refused = run("");
    assert!(
        refused.code != 0 && refused.err().contains(&format!("--allow {name}")),
        "{refused}"
    );
    assert!(
        begun.elapsed() < AT_ONCE,
        "{:?}: {refused}",
        begun.elapsed()
    );
    run(&format!("--allow {}", server.rule(name))).expect_code(0)
}

/// Every file below `dir`, by its path from there.
fn read_tree(dir: &Path, prefix: &str, files: &mut Files) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = format!("{prefix}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            read_tree(&entry.path(), &path, files);
        } else {
            let _ = files.insert(path, std::fs::read(entry.path()).unwrap());
        }
    }
}

fn tool(dir: &Path, words: &[&str]) -> String {
    let output = Command::new(words[0])
        .args(&words[1..])
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn git_clones() {
    if !has("git") {
        skip!("git is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "of the repository\n").unwrap();
    for words in [
        "git init -q",
        "git add file",
        "git -c user.name=a -c user.email=a@b.c commit -qm one",
        "git clone -q --bare . bare.git",
        "git -C bare.git update-server-info",
    ] {
        let _ = tool(dir.path(), &words.split(' ').collect::<Vec<_>>());
    }
    let mut files = Files::new();
    read_tree(&dir.path().join("bare.git"), "/repo.git", &mut files);
    let server = files_server(files);
    Person::each(|person| {
        let script = "git clone -q http://$AT/repo.git /tmp/clone && cat /tmp/clone/file";
        let ran = with_and_without(person, &server, "git.test", script);
        assert_eq!(ran.out(), "of the repository\n", "{ran}");
    });
}

#[test]
fn npm_installs() {
    if !has("npm") {
        skip!("npm is not installed");
    }
    npm_registry(|server| {
        Person::each(|person| {
            let script = "cd /tmp && npm install --no-audit --no-fund --loglevel error --registry http://$AT/ pad >&2 && \
                          node -p \"require('/tmp/node_modules/pad')\"";
            let ran = with_and_without(person, server, "npm.test", script);
            assert_eq!(ran.out(), "padded\n", "{ran}");
        });
    });
}

/// Calls `test` with a registry that has one package, `pad`.
pub(crate) fn npm_registry(test: impl Fn(&Server)) {
    let dir = tempfile::tempdir().unwrap();
    let package = dir.path().join("package");
    std::fs::create_dir(&package).unwrap();
    std::fs::write(
        package.join("package.json"),
        r#"{"name":"pad","version":"1.0.0"}"#,
    )
    .unwrap();
    std::fs::write(package.join("index.js"), "module.exports = 'padded'\n").unwrap();
    let _ = tool(dir.path(), &["tar", "-czf", "pad.tgz", "package"]);
    let about = serde_json::json!({"name": "pad", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0":
        {"name": "pad", "version": "1.0.0", "dist": {"tarball": "http://@AT@/pad-1.0.0.tgz"}}}});
    let server = files_server(Files::from([
        ("/pad".to_owned(), about.to_string().into_bytes()),
        (
            "/pad-1.0.0.tgz".to_owned(),
            std::fs::read(dir.path().join("pad.tgz")).unwrap(),
        ),
    ]));
    test(&server);
}

#[test]
fn pip_installs() {
    let dir = tempfile::tempdir().unwrap();
    if Command::new("/usr/bin/python3")
        .args(["-m", "pip", "--version"])
        .output()
        .is_ok_and(|output| !output.status.success())
    {
        skip!("the machine's python3 has no pip");
    }
    let info = dir.path().join("pad-1.0.dist-info");
    std::fs::create_dir(&info).unwrap();
    std::fs::write(dir.path().join("pad.py"), "said = 'padded'\n").unwrap();
    std::fs::write(
        info.join("METADATA"),
        "Metadata-Version: 2.1\nName: pad\nVersion: 1.0\n",
    )
    .unwrap();
    std::fs::write(
        info.join("WHEEL"),
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    )
    .unwrap();
    std::fs::write(info.join("RECORD"), "pad.py,,\npad-1.0.dist-info/METADATA,,\npad-1.0.dist-info/WHEEL,,\npad-1.0.dist-info/RECORD,,\n").unwrap();
    let wheel = "pad-1.0-py3-none-any.whl";
    let _ = tool(
        dir.path(),
        &[
            "/usr/bin/python3",
            "-m",
            "zipfile",
            "-c",
            wheel,
            "pad.py",
            "pad-1.0.dist-info",
        ],
    );
    let files = Files::from([
        (
            "/simple/pad/".to_owned(),
            format!("<a href=\"/{wheel}\">{wheel}</a>").into_bytes(),
        ),
        (
            format!("/{wheel}"),
            std::fs::read(dir.path().join(wheel)).unwrap(),
        ),
    ]);
    let server = files_server(files);
    Person::each(|person| {
        let script = "export PIP_CONFIG_FILE=/dev/null; /usr/bin/python3 -m pip install -q --target /tmp/x --index-url http://$AT/simple \
                      --trusted-host pip.test pad >&2 && PYTHONPATH=/tmp/x /usr/bin/python3 -c 'import pad; print(pad.said)'";
        let ran = with_and_without(person, &server, "pip.test", script);
        assert_eq!(ran.out(), "padded\n", "{ran}");
    });
}

#[test]
fn cargo_fetches() {
    let dir = tempfile::tempdir().unwrap();
    let package = dir.path().join("pad-1.0.0");
    std::fs::create_dir_all(package.join("src")).unwrap();
    std::fs::write(
        package.join("Cargo.toml"),
        "[package]\nname = \"pad\"\nversion = \"1.0.0\"\n",
    )
    .unwrap();
    std::fs::write(package.join("src/lib.rs"), "").unwrap();
    let _ = tool(dir.path(), &["tar", "-czf", "pad.crate", "pad-1.0.0"]);
    let sum = tool(dir.path(), &["sha256sum", "pad.crate"]);
    let index = format!(
        "{{\"name\":\"pad\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"{}\",\"features\":{{}},\"yanked\":false}}\n",
        sum.split(' ').next().unwrap()
    );
    let crate_file = std::fs::read(dir.path().join("pad.crate")).unwrap();
    let server = files_server(Files::from([
        ("/3/p/pad".to_owned(), index.into_bytes()),
        ("/pad/1.0.0/download".to_owned(), crate_file),
        (
            "/config.json".to_owned(),
            br#"{"dl":"http://@AT@"}"#.to_vec(),
        ),
    ]));
    let script = "mkdir -p /tmp/p/src /tmp/p/.cargo && cd /tmp/p && touch src/lib.rs && export CARGO_HOME=/tmp/h && \
        printf '[package]\\nname = \"p\"\\nversion = \"0.1.0\"\\n[dependencies]\\npad = { version = \"1\", registry = \"own\" }\\n' > Cargo.toml && \
        printf '[registries.own]\\nindex = \"sparse+http://%s/\"\\n' $AT > .cargo/config.toml && cargo fetch >&2 && ls /tmp/h/registry/src/*";
    Person::each(|person| {
        let Some(tools) = rust_tools(person) else {
            skip!("needs cargo and rustup in a home")
        };
        let ran = with_and_without_by(&server, "crates.test", script, |words| {
            let mut all: Vec<OsString> = vec![person.binary().into()];
            all.extend(words.iter().map(OsString::from));
            let project = person.project();
            Ran::new(tools.command(person, &all, &project).output().unwrap())
        });
        assert!(ran.out().contains("pad-1.0.0"), "{ran}");
    });
}

#[test]
fn apt_downloads() {
    if !has("apt-get") || !has("dpkg-deb") {
        skip!("apt and dpkg are not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("pad/DEBIAN");
    std::fs::create_dir_all(&control).unwrap();
    std::fs::write(
        control.join("control"),
        "Package: pad\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: pad\n",
    )
    .unwrap();
    let _ = tool(dir.path(), &["dpkg-deb", "--build", "pad", "pad.deb"]);
    let deb = std::fs::read(dir.path().join("pad.deb")).unwrap();
    let sum = tool(dir.path(), &["sha256sum", "pad.deb"]);
    let packages = format!(
        "Package: pad\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: pad\nFilename: ./pad.deb\nSize: {}\nSHA256: {}\n",
        deb.len(),
        sum.split(' ').next().unwrap()
    );
    let server = files_server(Files::from([
        ("/./Packages".to_owned(), packages.clone().into_bytes()),
        ("/Packages".to_owned(), packages.into_bytes()),
        ("/./pad.deb".to_owned(), deb.clone()),
        ("/pad.deb".to_owned(), deb),
    ]));
    Person::each(|person| {
        let script = "mkdir -p /tmp/a/lists/partial /tmp/a/cache/archives/partial && cd /tmp/a && touch status && \
            echo \"deb [trusted=yes] http://$AT ./\" > list && \
            o=\"-o Dir::State=/tmp/a -o Dir::State::status=/tmp/a/status -o Dir::Cache=/tmp/a/cache -o Dir::Etc::sourcelist=/tmp/a/list \
            -o Dir::Etc::sourceparts=- -o APT::Sandbox::User= -o Acquire::Retries=0 -o Acquire::http::Proxy=DIRECT\" && \
            apt-get -q $o -o APT::Update::Error-Mode=any update >&2 && apt-get -q $o download pad >&2 && ls *.deb";
        let ran = with_and_without(person, &server, "deb.test", script);
        assert_eq!(ran.out(), "pad_1.0_all.deb\n", "{ran}");
    });
}

#[test]
fn programs_in_several_languages_fetch() {
    let server = files_server(Files::from([("/text".to_owned(), b"fetched\n".to_vec())]));
    let clients = [
        ("curl", "curl -fsS http://$AT/text"),
        ("wget", "wget -qO- http://$AT/text"),
        (
            "python3",
            "python3 -c \"import os, urllib.request as u; print(u.urlopen('http://%s/text' % os.environ['AT']).read().decode(), end='')\"",
        ),
        (
            "node",
            "node -e \"fetch('http://' + process.env.AT + '/text').then(async a => process.stdout.write(await a.text()))\"",
        ),
        (
            "perl",
            "perl -MHTTP::Tiny -e 'my $a = HTTP::Tiny->new->get(\"http://$ENV{AT}/text\"); die $a->{content} unless $a->{success}; print $a->{content}'",
        ),
        // A client in Go, which looks names up by itself.
        (
            "rclone",
            "GODEBUG=netdns=go rclone -q --config /dev/null copyurl --stdout http://$AT/text",
        ),
        (
            "javac",
            "mkdir /tmp/j; cd /tmp/j; printf 'import java.net.*; public class Get { public static void main(String[] a) throws Exception { \
          System.out.print(new String(new URL(\"http://\" + a[0] + \"/text\").openStream().readAllBytes())); } }' > Get.java; \
          java -Xmx64m Get.java $AT",
        ),
    ];
    if let Some(module) = testkit::installed("requests/requests/__init__.py") {
        // The HTTP client that most programs in Python use.
        let packages = module.ancestors().nth(2).unwrap().to_owned();
        Person::each(|person| {
            let copied = Command::new("cp")
                .arg("-r")
                .arg(&packages)
                .arg(person.project().join("packages"))
                .status();
            assert!(copied.unwrap().success());
            let script = "python3 -c \"import os, sys; sys.path.insert(0, 'packages'); import requests; \
                          print(requests.get('http://%s/text' % os.environ['AT']).text, end='')\"";
            let ran = with_and_without(person, &server, "web.test", script);
            assert_eq!(ran.out(), "fetched\n", "requests: {ran}");
        });
    } else {
        testkit::skip_loudly(module_path!(), "requests (Python) is not installed");
    }
    for (program, script) in clients {
        if !has(program) {
            skip!("{program} is not installed");
        }
        Person::each(|person| {
            let ran = with_and_without(person, &server, "web.test", script);
            assert_eq!(ran.out(), "fetched\n", "{program}: {ran}");
        });
    }
}
