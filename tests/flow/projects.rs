//! Real projects with their real tools: the same result inside as on the host, passing and failing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::{Canary, Person, UNPRIVILEGED_ID, has_program, skip};

/// A project whose tests pass, and the change that breaks them.
struct Project {
    files: &'static [(&'static str, &'static str)],
    /// Replaces a file.
    broken: (&'static str, &'static str),
    /// Runs the tests.
    command: &'static [&'static str],
    /// Said when they pass, and when they fail.
    words: [&'static str; 2],
}

/// How a person calls programs, when it takes more than their name.
#[derive(Default)]
pub(crate) struct Tools {
    /// Put before every call.
    wrapper: Vec<OsString>,
    /// Variables on top of the usual ones.
    env: Vec<(&'static str, OsString)>,
}

impl Tools {
    pub(crate) fn command(&self, person: &Person, words: &[OsString], dir: &Path) -> Command {
        let mut all = self.wrapper.iter().chain(words);
        // Wrapped calls change the user themselves.
        let mut command = person.program(all.next().unwrap());
        if !self.wrapper.is_empty() {
            command.uid_of_caller();
        }
        command
            .args(all)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(dir);
        command.stdin(Stdio::null());
        command
    }
}

trait AsCaller {
    fn uid_of_caller(&mut self);
}

impl AsCaller for Command {
    fn uid_of_caller(&mut self) {
        use std::os::unix::process::CommandExt;
        self.uid(0).gid(0);
    }
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// Exit code and all that was said.
fn outcome(mut command: Command) -> (i32, String) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

fn check(person: &Person, project: &Project, tools: &Tools, prepare: &[&str]) {
    for (path, content) in project.files {
        person.write(Path::new("project").join(path), content);
    }
    if !prepare.is_empty() {
        let (code, said) = outcome(tools.command(person, &words(prepare), &person.project()));
        assert_eq!(code, 0, "{prepare:?}: {said}");
    }
    for (index, word) in project.words.iter().enumerate() {
        if index == 1 {
            person.write(
                Path::new("project").join(project.broken.0),
                project.broken.1,
            );
        }
        let inside = {
            let canary = Canary::watch(person.project());
            let mut call = vec![person.binary().into()];
            call.extend(words(&[
                "run",
                "--apply",
                "never",
                "--timeout",
                "120s",
                "--",
            ]));
            call.extend(words(project.command));
            let inside = outcome(tools.command(person, &call, &person.project()));
            canary.assert_untouched();
            inside
        };
        // On the host in a copy, because there it leaves its traces.
        let copy = person.place().root().join("copy");
        let _ = std::fs::remove_dir_all(&copy);
        let made = Command::new("cp")
            .arg("-a")
            .args([&person.project(), &copy])
            .status()
            .unwrap();
        assert!(made.success());
        let outside = outcome(tools.command(person, &words(project.command), &copy));
        assert_eq!((outside.0 == 0), index == 0, "on the host: {}", outside.1);
        assert_eq!(
            inside.0, outside.0,
            "inside: {}\non the host: {}",
            inside.1, outside.1
        );
        for (place, said) in [("inside", &inside.1), ("on the host", &outside.1)] {
            assert!(said.contains(word), "no `{word}` {place}: {said}");
        }
    }
    person.assert_nothing_left();
}

#[test]
fn c_with_make_check() {
    if !has_program("make") || !has_program("gcc") {
        skip!("needs make and gcc");
    }
    let project = Project {
        files: &[
            ("sum.c", "int sum(int a, int b) { return a + b; }\n"),
            (
                "test.c",
                "#include <stdio.h>\n#include <stdlib.h>\nint sum(int, int);\nint main(void) {\n  FILE *f = tmpfile();\n  if (!f || fputs(\"x\", f) < 0) return 2;\n  if (sum(2, 3) != 5) { puts(\"FAILED sum\"); return 1; }\n  puts(\"PASSED sum\");\n  return 0;\n}\n",
            ),
            (
                "Makefile",
                "CC = gcc\ncheck: test\n\t./test\ntest: sum.o test.o\n\t$(CC) -o $@ $^\nclean:\n\trm -f *.o test\n",
            ),
        ],
        broken: ("sum.c", "int sum(int a, int b) { return a - b; }\n"),
        command: &["make", "check"],
        words: ["PASSED sum", "FAILED sum"],
    };
    Person::each(|person| check(person, &project, &Tools::default(), &[]));
}

const PYTHON_FILES: &[(&str, &str)] = &[
    ("shapes/__init__.py", "def area(a, b):\n    return a * b\n"),
    (
        "tests/test_shapes.py",
        "import sqlite3, subprocess, sys, tempfile, threading, multiprocessing\nimport pytest\nfrom shapes import area\n\n\
         def test_area():\n    assert area(2, 3) == 6\n\n\
         def test_child():\n    assert subprocess.check_output([sys.executable, '-c', 'print(6)']) == b'6\\n'\n\n\
         def test_semaphore():\n    assert multiprocessing.Semaphore(1).acquire()\n\n\
         def test_database(tmp_path):\n    base = sqlite3.connect(tmp_path / 'x.db')\n    base.execute('create table t (a)')\n    base.commit()\n",
    ),
];

const PYTHON_BROKEN: (&str, &str) = ("shapes/__init__.py", "def area(a, b):\n    return a + b\n");

#[test]
fn python_with_pytest() {
    if !Path::new("/usr/bin/pytest").exists() {
        skip!("needs pytest (Debian: python3-pytest)");
    }
    let project = Project {
        files: PYTHON_FILES,
        broken: PYTHON_BROKEN,
        command: &["/usr/bin/python3", "-m", "pytest"],
        words: ["4 passed", "1 failed, 3 passed"],
    };
    Person::each(|person| check(person, &project, &Tools::default(), &[]));
}

#[test]
fn python_in_an_environment_of_the_project() {
    if !Path::new("/usr/bin/pytest").exists() {
        skip!("needs pytest (Debian: python3-pytest)");
    }
    let project = Project {
        files: PYTHON_FILES,
        broken: PYTHON_BROKEN,
        command: &[".venv/bin/python", "-m", "pytest", "tests"],
        words: ["4 passed", "1 failed, 3 passed"],
    };
    let prepare = [
        "/usr/bin/python3",
        "-m",
        "venv",
        "--system-site-packages",
        "--without-pip",
        ".venv",
    ];
    Person::each(|person| check(person, &project, &Tools::default(), &prepare));
}

#[test]
fn node_with_npm_test() {
    if !has_program("npm") || !has_program("node") {
        skip!("needs node and npm");
    }
    let project = Project {
        files: &[
            (
                "package.json",
                r#"{"name":"shapes","version":"1.0.0","private":true,"scripts":{"test":"node test.js"}}"#,
            ),
            ("shapes.js", "exports.area = (a, b) => a * b;\n"),
            (
                "test.js",
                "const assert = require('assert'), fs = require('fs'), http = require('http'), os = require('os');\n\
                 const { execFileSync } = require('child_process');\nconst { area } = require('./shapes');\n\
                 try { assert.strictEqual(area(2, 3), 6); } catch (e) { console.log('not ok area'); process.exit(1); }\n\
                 fs.rmSync(fs.mkdtempSync(os.tmpdir() + '/shapes-'), { recursive: true });\nfs.mkdirSync('build', { recursive: true });\n\
                 assert.strictEqual(execFileSync('node', ['-p', '6']).toString(), '6\\n');\n\
                 const server = http.createServer((q, r) => r.end('six')).listen(0, '127.0.0.1', () =>\n\
                 http.get({ port: server.address().port }, (r) => r.on('data', (d) => { assert.strictEqual(d.toString(), 'six'); console.log('ok area'); server.close(); })));\n",
            ),
        ],
        broken: ("shapes.js", "exports.area = (a, b) => a + b;\n"),
        command: &["npm", "test"],
        words: ["ok area", "not ok area"],
    };
    Person::each(|person| check(person, &project, &Tools::default(), &[]));
}

/// Rust toolchains live in a home. Root works with the one there is; an ordinary user gets the same
/// one shown in a home of their own.
pub(crate) fn rust_tools(person: &Person) -> Option<Tools> {
    let home = PathBuf::from(std::env::var_os("HOME")?);
    let place = |name: &str, usual: &str| {
        std::env::var_os(name).map_or_else(|| home.join(usual), PathBuf::from)
    };
    let (cargo, rustup) = (
        place("CARGO_HOME", ".cargo"),
        place("RUSTUP_HOME", ".rustup"),
    );
    if !cargo.join("bin/cargo").exists() || !rustup.join("toolchains").exists() {
        return None;
    }
    let path = |cargo: &Path| {
        let mut path = cargo.join("bin").into_os_string();
        path.push(":/usr/local/bin:/usr/bin:/bin");
        path
    };
    if person.is_root() || !testkit::is_root() {
        let env = vec![
            ("HOME", home.into_os_string()),
            ("PATH", path(&cargo)),
            ("CARGO_HOME", cargo.into_os_string()),
            ("RUSTUP_HOME", rustup.into_os_string()),
        ];
        return Some(Tools {
            wrapper: Vec::new(),
            env,
        });
    }
    let own = person.place().home();
    for name in [".cargo", ".rustup"] {
        std::fs::create_dir_all(own.join(name)).unwrap();
        person.own(&own.join(name));
    }
    const MOUNT: &str = "mount --bind \"$1\" \"$3/.cargo\" && mount --bind \"$2\" \"$3/.rustup\" && user=$4 && shift 4 && \
        exec setpriv --reuid $user --regid $user --clear-groups \"$@\"";
    let mut wrapper = words(&["unshare", "--mount", "sh", "-c", MOUNT, "sh"]);
    wrapper.extend([
        cargo.into(),
        rustup.into(),
        own.clone().into(),
        UNPRIVILEGED_ID.to_string().into(),
    ]);
    Some(Tools {
        wrapper,
        env: vec![("PATH", path(&own.join(".cargo")))],
    })
}

#[test]
fn rust_with_cargo_test() {
    const MANIFEST: &str = "[package]\nname = \"shapes\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n\n[dependencies]\n";
    const PLAIN: Project = Project {
        files: &[
            ("Cargo.toml", MANIFEST),
            (
                "src/lib.rs",
                "pub fn area(a: u32, b: u32) -> u32 { a * b }\n",
            ),
            (
                "tests/area.rs",
                "#[test]\nfn area() { assert_eq!(shapes::area(2, 3).to_string(), \"6\"); }\n",
            ),
        ],
        broken: (
            "src/lib.rs",
            "pub fn area(a: u32, b: u32) -> u32 { a + b }\n",
        ),
        command: &["cargo", "test", "--offline", "--test", "area"],
        words: ["1 passed; 0 failed", "0 passed; 1 failed"],
    };
    const WITH_DEPENDENCY: Project = Project {
        files: &[
            (
                "Cargo.toml",
                "[package]\nname = \"shapes\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n\n[dependencies]\nitoa = \"1\"\n",
            ),
            (
                "src/lib.rs",
                "pub fn area(a: u32, b: u32) -> u32 { a * b }\n",
            ),
            (
                "tests/area.rs",
                "#[test]\nfn area() { assert_eq!(itoa::Buffer::new().format(shapes::area(2, 3)), \"6\"); }\n",
            ),
        ],
        ..PLAIN
    };
    Person::each(|person| {
        let Some(tools) = rust_tools(person) else {
            skip!("needs cargo and rustup in a home")
        };
        // A package of the registry, if this machine has one or can get it.
        person.write("probe/Cargo.toml", WITH_DEPENDENCY.files[0].1);
        person.write("probe/src/lib.rs", "");
        let probe = person.place().root().join("probe");
        let has_package = ["cargo fetch --offline", "cargo fetch"]
            .into_iter()
            .any(|line| {
                let call = words(&line.split(' ').collect::<Vec<_>>());
                outcome(tools.command(person, &call, &probe)).0 == 0
            });
        if has_package {
            check(
                person,
                &WITH_DEPENDENCY,
                &tools,
                &["cargo", "generate-lockfile", "--offline"],
            );
        } else {
            check(person, &PLAIN, &tools, &[]);
        }
    });
}
