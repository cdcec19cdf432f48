//! The loop closed: what a command changes comes back, all of it or nothing, and nothing else does.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;
use testkit::{Person, Ran, filters, has_program, skip};

const MAKE: &str = "git init -q -b main . && git config user.name T && git config user.email t@example.org && \
    mkdir src && echo foo > src/x && echo y > y && echo a > a && echo c > c && git add . && git commit -q -m first";
const WORK: &str = "sed -i s/foo/bar/ src/x && rm y && mv a b && chmod +x c";

/// What a tree is: names, kinds, modes and contents; `.git` aside.
pub(crate) type Tree = Vec<(Vec<u8>, String)>;

pub(crate) fn look(dir: &Path) -> Tree {
    let mut tree = Vec::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(at) = pending.pop() {
        for entry in fs::read_dir(&at).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(dir).unwrap().as_os_str().as_bytes();
            // What an interrupted pull leaves, until the next one cleans up.
            if name == b".git" || name.starts_with(b".glovebox-pull-") {
                continue;
            }
            let Ok(meta) = path.symlink_metadata() else {
                continue;
            };
            let what = if meta.is_symlink() {
                format!("link {}", fs::read_link(&path).unwrap().display())
            } else if meta.is_dir() {
                pending.push(path.clone());
                "dir".to_owned()
            } else {
                let hash = blake3::hash(&fs::read(&path).unwrap_or_default());
                format!("file {} {hash}", meta.mode() & 0o7111)
            };
            tree.push((name.to_vec(), what));
        }
    }
    tree.sort();
    tree
}

pub(crate) fn on_the_host(person: &Person, dir: &Path, script: &str) -> String {
    let mut command = person.program("sh");
    let output = command
        .args(["-c", script])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a script in the project, outside.
pub(crate) fn host(person: &Person, script: &str) -> String {
    on_the_host(person, &person.project(), script)
}

/// Runs a script in the sandbox `work`.
pub(crate) fn inside(person: &Person, script: &str) -> String {
    person
        .script("exec work", script)
        .run()
        .expect_code(0)
        .out()
}

/// What Glovebox itself has said on standard error, as a snapshot shows it: without what commands have written there,
/// and without the lines that only some machines print.
pub(crate) fn told(person: &Person, ran: &Ran) -> String {
    const OWN: [&str; 5] = ["glovebox: ", "warning: ", "error: ", "hint: ", "  "];
    const OF_MACHINE: [&str; 2] = ["glovebox: limits here: ", "glovebox: readable inside: "];
    let begins = |line: &str, words: &[&str]| words.iter().any(|word| line.starts_with(word));
    let err = ran.err();
    let lines: Vec<&str> = err
        .lines()
        .filter(|line| begins(line, &OWN) && !begins(line, &OF_MACHINE))
        .collect();
    filters(&lines.join("\n"), person.place().root())
}

/// What the same work leaves when it is done outside.
fn wanted(person: &Person, make: &str, work: &str) -> Tree {
    let dir = person.place().root().join("twin");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).unwrap();
    person.own(&dir);
    on_the_host(person, &dir, &format!("{make}\n{work}"));
    look(&dir)
}

#[test]
fn what_a_command_does_is_done_to_the_project() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        on_the_host(person, &person.project(), MAKE);
        let ran = person.script("run --apply auto", WORK).run().expect_code(0);
        assert_eq!(look(&person.project()), wanted(person, MAKE, WORK), "{ran}");
        insta::assert_snapshot!(told(person, &ran), @"
        glovebox: applied to [ROOT]/project: 2 modified, 1 deleted, 1 renamed
          R a -> b
          M c
          M src/x
          D y
        warning: look at these before you use them:
          c: became executable
        ");
        assert_eq!(ran.out(), "");
        person.assert_nothing_left();
    });
}

#[test]
fn a_patch_does_the_same_later() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        on_the_host(person, &person.project(), MAKE);
        let before = look(&person.project());
        let patch = person.place().root().join("home/p");
        let mut args: Vec<std::ffi::OsString> = ["run", "-q", "--apply", "never", "--patch"]
            .map(Into::into)
            .to_vec();
        let script =
            format!("{WORK} && printf '\\0\\377' > bin && printf x > 'a \"name\"\nof two lines'");
        args.push(patch.clone().into());
        args.extend(["--", "sh", "-c", &script].map(Into::into));
        let quiet = person.glovebox(&args).run().expect_code(0);
        assert_eq!(quiet.err(), "");
        assert_eq!(look(&person.project()), before);
        // What it is, where it is and what to do with it is said, also without a terminal.
        args.remove(1);
        let ran = person.glovebox(&args).run().expect_code(0);
        insta::assert_snapshot!(told(person, &ran), @"glovebox: 6 changes in the patch [ROOT]/home/p; `git apply [ROOT]/home/p` takes them over");
        on_the_host(
            person,
            &person.project(),
            &format!("git apply {}", patch.display()),
        );
        assert_eq!(look(&person.project()), wanted(person, MAKE, &script));
    });
}

#[test]
fn what_both_sides_changed_is_never_lost() {
    Person::each(|person| {
        let read = |name: &str| fs::read_to_string(person.project().join(name)).unwrap_or_default();
        person.write("project/x", "base\n");
        person.line("start -q box").run().expect_code(0);
        person
            .script("exec box", "echo theirs > x; echo new > n")
            .run()
            .expect_code(0);
        person.write("project/x", "mine\n");
        let dry = person
            .line("pull box --dry-run --json")
            .run()
            .expect_code(3);
        assert!(dry.out().contains("\"conflict\""), "{dry}");
        assert_eq!(read("n"), "");
        let pulled = person.line("pull box").run().expect_code(3);
        assert_eq!(read("x"), "mine\n", "{pulled}");
        assert_eq!(read("x.theirs"), "theirs\n", "{pulled}");
        assert_eq!(read("n"), "new\n", "{pulled}");
        insta::assert_snapshot!(pulled.shown_err(person.place().root()), @"
        glovebox: applied to [ROOT]/project: 1 added
        warning: 1 conflict; yours stayed as it is:
          x: changed on both sides; the sandbox's is x.theirs
        error: 1 path changed on both sides
        hint: compare FILE with FILE.theirs, put both into the file with `glovebox pull box --merge`, or take the sandbox's with `glovebox pull box --force`
        ");
        person.line("pull box --force").run().expect_code(0);
        assert_eq!(read("x"), "theirs\n");
        assert_eq!(read("x.orig"), "mine\n");
        person.line("kill box").run().expect_code(0);

        // The same at the end of `run`: the command's own failure is told first.
        for (code, want) in [(0, 3), (7, 7)] {
            person.write("project/y", "base\n");
            let script = format!("echo theirs > y; sleep 2; exit {code}");
            let mut args = vec!["run", "--apply", "auto", "--", "sh", "-c"];
            args.push(&script);
            let host = person.project().join("y");
            let meanwhile = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(1));
                fs::write(host, "mine\n").unwrap();
            });
            let ran = person.glovebox(&args).run().expect_code(want);
            meanwhile.join().unwrap();
            assert_eq!(read("y"), "mine\n", "{ran}");
            assert_eq!(read("y.theirs"), "theirs\n", "{ran}");
            fs::remove_file(person.project().join("y.theirs")).unwrap();
        }
    });
}

#[test]
fn what_a_sandbox_plants_stays_in_it_and_is_named() {
    Person::each(|person| {
        person.write("project/.git/HEAD", "ref: refs/heads/main\n");
        let outside = person.place().root().join("x");
        let script = "ln -s /etc evil; ln -s ../../x up; mkdir -p d .git/hooks .github/workflows; ln -s ../../../x d/up; \
            echo 'touch /tmp/planted' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout; \
            cp /bin/true suid; chmod 6755 suid; mkfifo fifo; echo on > .github/workflows/ci.yml; ln -s suid inside; \
            ln suid second; printf ok > plain";
        let ran = person
            .script("run --apply auto", script)
            .run()
            .expect_code(0);
        let project = person.project();
        for stays in ["evil", "up", "d/up", ".git/hooks/post-checkout", "fifo"] {
            assert!(
                project.join(stays).symlink_metadata().is_err(),
                "{stays} came back"
            );
        }
        assert!(!outside.exists());
        insta::assert_snapshot!(told(person, &ran), @"
        glovebox: applied to [ROOT]/project: 8 added
          A .github
          A .github/workflows
          A .github/workflows/ci.yml
          A d
          A inside
          A plain
          A second
          A suid
        warning: look at these before you use them:
          .github/workflows/ci.yml: runs on the host or steers what does (continuous integration and deployment run it)
          second: had a setuid, setgid or sticky bit, which is dropped, has several names, which become files of their own, became executable
          suid: had a setuid, setgid or sticky bit, which is dropped, has several names, which become files of their own, became executable
        glovebox: 5 paths stay in the sandbox:
          .git: part of `.git` or of the repository that it names, which never comes back
          fifo: a device, FIFO or socket
          d/up: a link that leads out of the workspace
          evil: a link that leads out of the workspace
          up: a link that leads out of the workspace
        ");
        let mode = |name: &str| {
            fs::metadata(project.join(name))
                .unwrap()
                .permissions()
                .mode()
        };
        assert_eq!(mode("suid") & 0o6000, 0);
        assert_ne!(mode("suid") & 0o100, 0);
        assert_eq!(
            fs::read_link(project.join("inside")).unwrap(),
            Path::new("suid")
        );
        assert_eq!(fs::metadata(project.join("second")).unwrap().nlink(), 1);
        assert_eq!(fs::read_to_string(project.join("plain")).unwrap(), "ok");
    });
}

#[test]
fn names_of_any_bytes_come_back() {
    Person::each(|person| {
        let script = r#"printf 1 > 'a b'; printf 2 > 'new
line'; printf 3 > "q'u\"ote"; printf 4 > "$(printf 'not\377utf8')"; mkdir -- '-d'; printf 5 > './-d/*'; printf 6 > "$(printf 'esc\033[2J')""#;
        let ran = person
            .script("run --apply auto", script)
            .run()
            .expect_code(0);
        assert_eq!(
            look(&person.project()),
            wanted(person, "true", script),
            "{ran}"
        );
        assert!(!ran.stderr.contains(&0x1b), "{ran}");
    });
}

#[test]
fn a_failed_end_keeps_the_sandbox_and_says_how_to_go_on() {
    Person::each(|person| {
        let ran = person
            .script("run --patch /nonexistent/dir/p", "echo work > result")
            .run()
            .expect_code(125);
        let text = ran.err();
        let name = text
            .split("`glovebox pull ")
            .nth(1)
            .and_then(|rest| rest.split('`').next())
            .unwrap_or_else(|| panic!("no way to go on: {ran}"))
            .to_owned();
        person.glovebox(["pull", "-q", &name]).run().expect_code(0);
        assert_eq!(
            fs::read_to_string(person.project().join("result")).unwrap(),
            "work\n"
        );
        // The command's own failure is told, and its work is kept all the same.
        let ran = person
            .script(
                "run --patch /nonexistent/dir/p",
                "echo more > result; exit 9",
            )
            .run()
            .expect_code(9);
        insta::assert_snapshot!(told(person, &ran), @"
        error: cannot write the patch to /nonexistent/dir/p: No such file or directory
        glovebox: the changes are parked for a day: `glovebox pull run-[RANDOM]` takes them over, `glovebox diff run-[RANDOM]` shows them
        ");
    });
}

#[test]
fn failures_have_codes_and_stages() {
    Person::each(|person| {
        person.write("project/x", "x\n");
        person.line("start -q box").run().expect_code(0);
        person.script("exec box", "echo y > x").run().expect_code(0);
        let ran = person
            .line("pull box --to /nonexistent/d --json")
            .run()
            .expect_code(6);
        assert!(ran.out().contains("\"not-found\""), "{ran}");
        let ran = person.line("diff nobody --json").run().expect_code(6);
        assert!(ran.out().contains("\"sandbox-not-found\""), "{ran}");
        person.line("diff box ../x").run().expect_code(2);
        let ran = person
            .line("pull box --branch b --json")
            .run()
            .expect_code(6);
        let value: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(value["error"]["code"], "sync-failed", "{ran}");
        assert_eq!(value["error"]["direction"], "pull");
        assert_eq!(value["error"]["stage"], "apply");
        insta::assert_snapshot!(value["error"]["remedy"].as_str().unwrap(), @"run `git init` and commit first, or pull without `--branch`; nothing was changed and the sandbox is as it was; try again with `glovebox pull box --branch b`");
    });
}

#[test]
fn each_key_of_the_configuration_has_its_effect() {
    const CONFIG: &str = "home/.config/glovebox/glovebox.toml";
    Person::each(|person| {
        let has = |name: &str| person.project().join(name).exists();
        let reset = || {
            for name in ["a.log", "b.txt", "keep.log"] {
                let _ = fs::remove_file(person.project().join(name));
            }
        };
        let work = "touch a.log b.txt keep.log";
        person.write(CONFIG, "[sync.pull]\nexclude = [\"*.log\"]\n");
        let ran = person.script("run --apply auto", work).run().expect_code(0);
        assert!(has("b.txt") && !has("a.log"), "{ran}");
        insta::assert_snapshot!(told(person, &ran), @"
        glovebox: applied to [ROOT]/project: 1 added
          A b.txt
        glovebox: 2 paths stay in the sandbox:
          a.log: excluded
          keep.log: excluded
        ");
        reset();
        person.write(
            CONFIG,
            "[sync.pull]\nexclude = [\"*.log\"]\ninclude = [\"keep.log\"]\n",
        );
        person
            .script("run -q --apply auto", work)
            .run()
            .expect_code(0);
        assert!(has("keep.log") && !has("a.log"));
        reset();

        person.write(CONFIG, "sync.on_success = true\n");
        person
            .script("run -q", &format!("{work}; false"))
            .run()
            .expect_code(1);
        assert!(!has("b.txt"));
        person
            .script("run -q --apply never", work)
            .run()
            .expect_code(0);
        assert!(!has("b.txt"));
        person.script("run -q", work).run().expect_code(0);
        assert!(has("b.txt"));
        reset();
        person.write(CONFIG, "");
        person.script("run -q", work).run().expect_code(0);
        assert!(!has("b.txt"));
        person
            .script("run -q --sync-on-success", work)
            .run()
            .expect_code(0);
        assert!(has("b.txt"));
        reset();

        person.write("project/seen", "1");
        person.write("project/movie.mp4", "1");
        person.write("project/.env", "TOKEN=1");
        let list = |args: &str| person.script(args, "ls -A").run().expect_code(0);
        let shown = list("run");
        assert!(
            shown.out().contains("movie.mp4") && !shown.out().contains(".env"),
            "{shown}"
        );
        insta::assert_snapshot!(told(person, &shown), @"glovebox: hidden from the sandbox: 1 by a name like that of a secret (.env); --include PATTERN shows them");
        person.write(
            CONFIG,
            "[sync.push]\nexclude = [\"*.mp4\"]\ninclude = [\".env\"]\n",
        );
        let shown = list("run -q").out();
        assert!(
            !shown.contains("movie.mp4") && shown.contains(".env"),
            "{shown}"
        );
        person.write(CONFIG, "");
        let shown = list("run -q --include .env --exclude seen").out();
        assert!(!shown.contains("seen") && shown.contains(".env"), "{shown}");
        person.write(CONFIG, "sync.enabled = false\n");
        assert_eq!(list("run -q").out(), "");
        assert!(list("run -q --workspace overlay").out().contains("seen"));
        person.write(CONFIG, "workspace = \"none\"\n");
        assert_eq!(list("run -q").out(), "");

        // A project asks for less, never for more.
        person.write(CONFIG, "");
        let said = [
            "sync.on_success = true",
            "workspace = \"live\"",
            "[sync.push]\ninclude = [\".env\"]",
            "[sync.push]\nexclude = [\"!.env\"]",
        ]
        .map(|text| {
            person.write("project/glovebox.toml", text);
            let ran = person.line("run -- true").run().expect_code(125);
            ran.failure(person.place().root())
        });
        insta::assert_snapshot!(said.join("\n"), @"
        error: [ROOT]/project/glovebox.toml:1: `sync.on_success = true` writes to your files without asking, and a project may not do that by itself
        hint: read the file; if you trust it as it is, run `glovebox config trust` in the project, or pass `--trust-config` for this once
        error: [ROOT]/project/glovebox.toml:1: `workspace = live` gives the sandbox your own files to write, and a project may not do that by itself
        hint: read the file; if you trust it as it is, run `glovebox config trust` in the project, or pass `--trust-config` for this once
        error: [ROOT]/project/glovebox.toml:2: `sync.push.include = .env` shows files that are hidden otherwise, and a project may not do that by itself
        hint: read the file; if you trust it as it is, run `glovebox config trust` in the project, or pass `--trust-config` for this once
        error: [ROOT]/project/glovebox.toml:2: `sync.push.exclude = !.env` takes back what another pattern excludes, and a project may not do that by itself
        hint: read the file; if you trust it as it is, run `glovebox config trust` in the project, or pass `--trust-config` for this once
        ");
        person.write("project/glovebox.toml", "[sync.push]\nexclude = [\"seen\"]");
        assert!(!list("run -q").out().contains("seen"));
    });
}

#[test]
fn a_live_workspace_is_the_project_itself() {
    Person::each(|person| {
        person.write("project/.git/hooks/sample", "");
        let ran = person
            .script(
                "run --workspace live",
                "echo live > x; echo bad > .git/hooks/sample",
            )
            .run();
        assert_eq!(
            fs::read_to_string(person.project().join("x")).unwrap_or_default(),
            "live\n",
            "{ran}"
        );
        assert_eq!(
            fs::read_to_string(person.project().join(".git/hooks/sample")).unwrap(),
            ""
        );
        insta::assert_snapshot!(told(person, &ran), @"
        warning: --workspace live has no wall around the project: the command writes to your files at once
        glovebox: `/workspace/.git/hooks` is read-only in this sandbox: commands can write below /workspace, /tmp and their home directory
        ");
        person
            .line("run --workspace live --apply auto -- true")
            .run()
            .expect_code(125);
    });
}

#[test]
fn what_the_host_executes_is_pointed_out_with_what_executes_it() {
    Person::each(|person| {
        person.line("start -q box").run().expect_code(0);
        let executed = [
            ("Cargo.toml", "Cargo"),
            ("sub/build.rs", "Cargo"),
            (".pylintrc", "Python"),
            (".prettierrc.js", "JavaScript"),
            (".babelrc.js", "JavaScript"),
            ("SConstruct", "Python"),
            ("BUILD", "Bazel"),
            ("WORKSPACE", "Bazel"),
            ("app.gradle", "Java"),
            ("x.cmake", "C and C++"),
            ("CMakePresets.json", "C and C++"),
            (".lefthook.yml", "commits"),
            ("Brewfile", "Ruby"),
            (".dir-locals.el", "editors"),
            ("sub/.hg/hgrc", "version control"),
            ("yarn.lock", "downloaded"),
        ];
        let plain = ["src.rs", "notes.md", "sub/x.json", ".gitignore"];
        let names = executed.iter().map(|(name, _)| *name).chain(plain);
        let make: Vec<String> = names.map(|name| format!("echo x > {name}")).collect();
        let make = format!("mkdir -p sub/.hg && {}", make.join(" && "));
        person.script("exec box", &make).run().expect_code(0);
        let told = person
            .line("pull box --dry-run --json")
            .run()
            .expect_code(0);
        let told: serde_json::Value = serde_json::from_str(&told.out()).unwrap();
        let flagged = told["data"]["flagged"].as_array().unwrap();
        for (name, by) in executed {
            let found = flagged.iter().find(|flagged| flagged["path"] == name);
            let why = found
                .and_then(|flagged| flagged["why"].as_str())
                .unwrap_or_default();
            assert!(why.contains(by), "{name}: {why:?} in {told}");
        }
        for name in plain {
            assert!(
                flagged.iter().all(|flagged| flagged["path"] != name),
                "{name}"
            );
        }
        let shown = person.line("pull box --dry-run").run().expect_code(0);
        let line = "  Cargo.toml: runs on the host or steers what does (Cargo builds and runs what it says)\n";
        assert!(shown.err().contains(line), "{shown}");
    });
}

#[test]
fn a_branch_leaves_the_working_tree_alone() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        on_the_host(person, &person.project(), MAKE);
        person.line("start -q box").run().expect_code(0);
        person.script("exec box", WORK).run().expect_code(0);
        let pull = "pull box --branch box/work";
        person.line(pull).run().expect_code(0);
        person.line(pull).run().expect_code(3);
        let host = |script: &str| on_the_host(person, &person.project(), script);
        assert_eq!(host("git status --porcelain"), "");
        host("git checkout -q box/work");
        assert_eq!(look(&person.project()), wanted(person, MAKE, WORK));
    });
}

/// Maps a file, writes to it, and prints what the mapping and the file show; then maps it anew.
const MAP: &str = "import mmap, resource\nf = open('a', 'rb')\n\
    m = mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)\nprint(m[:1])\n\
    g = open('a', 'r+b'); g.write(b'X'); g.flush()\nprint(m[:1], open('a', 'rb').read(1))\n\
    f = open('a', 'rb')\nprint(mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)[:1])\n\
    print(resource.getrlimit(resource.RLIMIT_CORE))";

#[test]
fn mapping_of_a_project_file_shows_old_bytes_in_an_overlay_only() {
    if !has_program("python3") {
        skip!("python3 is not installed");
    }
    Person::each(|person| {
        for (way, seen) in [("overlay", "b'a'"), ("copy", "b'X'")] {
            person.write("project/a", "a\n");
            let ran = person
                .glovebox(["run", "-q", "--apply", "never", "--workspace", way])
                .args(["--", "python3", "-c", MAP])
                .run()
                .expect_code(0);
            let expected = format!("b'a'\n{seen} b'X'\nb'X'\n(1, 1)\n");
            assert_eq!(ran.out(), expected, "{way}");
        }
    });
}
