//! The quick tour of the README, typed word for word at a terminal in a cloned project, and what it leaves.
//!
//! The lines come out of the file itself, so that neither can change without the other. What a line needs from outside
//! (a model, a package of the machine) is scripted or there; a line for which it is not is left out and named.

use crate::screen::Terminal;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use testkit::{Asked, ModelServer, Person, Step, has_program, installed, skip, wait_until};

/// How long a line may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// What the project is made of; `.env` is not tracked, and `node_modules` is ignored.
const FILES: &[(&str, &str)] = &[
    (
        "package.json",
        r#"{"name":"tour","version":"1.0.0","private":true,"scripts":{"test":"node test.js","build":"node build.js"}}"#,
    ),
    ("greet.js", "module.exports = () => 'helo';\n"),
    (
        "test.js",
        "const greet = require('./greet'), shout = require('shout');\nconsole.log(shout(greet()));\n",
    ),
    (
        "build.js",
        "const fs = require('fs');\nfs.mkdirSync('public', { recursive: true });\n\
         fs.writeFileSync('public/bundle.js', '// built\\n');\nfs.writeFileSync('node_modules/.cache', 'x');\n",
    ),
    (
        "clean.py",
        "import sys\nfor line in sys.stdin:\n    print(line.strip().lower())\n",
    ),
    ("data.csv", " ONE,1\nTWO,2 \n"),
    (
        "agent.sh",
        "#!/bin/sh\ntest ! -e .env || { echo 'a secret is visible'; exit 9; }\necho line >> log.txt\nrm -f old.txt\n",
    ),
    ("old.txt", "to be removed\n"),
    ("notes.md", "TODO: write the docs\n"),
    (
        "agents.js",
        "import { tool } from 'ai';\nimport { z } from 'zod';\nexport const greet = tool({\n  description: 'Greets somebody',\n  \
         inputSchema: z.object({ name: z.string() }),\n  execute: ({ name }) => `hello ${name}`,\n});\n",
    ),
    (".gitignore", "node_modules/\n.env\n"),
];

const IGNORED: &[(&str, &str)] = &[
    (
        "node_modules/shout/index.js",
        "module.exports = (s) => s.toUpperCase() + '!';\n",
    ),
    (
        "node_modules/shout/package.json",
        r#"{"name":"shout","version":"1.0.0","main":"index.js"}"#,
    ),
    (".env", "SECRET=tour-secret\n"),
];

const README: &str = include_str!("../../README.md");

/// The lines of the tour, without the empty ones and the comments behind them.
fn lines() -> Vec<(String, String)> {
    let (_, tour) = README.split_once("## A quick tour\n\n```sh\n").unwrap();
    let (tour, _) = tour.split_once("```\n").unwrap();
    tour.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let command = line.split_once("  #").map_or(line, |(command, _)| command);
            (line.to_owned(), command.trim_end().to_owned())
        })
        .collect()
}

/// The model's part: it corrects the greeting, and writes the docs when it is asked for those.
fn reply(asked: &Asked) -> Step {
    let results = asked.body.matches("\"type\":\"tool_result\"").count();
    match (asked.body.contains("now the docs"), results) {
        (false, 0) => Step::call(
            "Bash",
            r#"{"command":"sed -i s/helo/hello/ greet.js && npm test"}"#,
        ),
        (false, _) => Step::text("the tests pass"),
        (true, 1) => Step::call("Write", r#"{"path":"docs.md","content":"say hello\n"}"#),
        (true, _) => Step::text("documented"),
    }
}

/// Every file of the project but the repository's own, with its content.
fn tree(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            let path = entry.path();
            if path.file_name().is_some_and(|name| name == ".git") {
                continue;
            }
            if path.is_dir() {
                pending.push(path);
            } else {
                let content = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                found.insert(path.strip_prefix(dir).unwrap().to_owned(), content);
            }
        }
    }
    found
}

fn git(person: &Person, words: &[&str]) -> String {
    let output = person
        .program("git")
        .args(["-c", "user.name=T", "-c", "user.email=t@example.com"])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes the project as the clone of a repository, with what `npm install` and a person put beside it.
fn clone_project(person: &Person) {
    let project = person.project();
    for (path, content) in FILES {
        person.write(Path::new("project").join(path), content);
    }
    // Under this name commits are made inside.
    person.write(
        "home/.gitconfig",
        "[user]\n\tname = T\n\temail = t@example.com\n",
    );
    fs::set_permissions(project.join("agent.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    git(person, &["init", "-q", "-b", "main"]);
    git(person, &["add", "."]);
    git(person, &["commit", "-qm", "begin"]);
    git(person, &["clone", "-q", ".", "../home/clone"]);
    fs::remove_dir_all(&project).unwrap();
    fs::rename(person.place().home().join("clone"), &project).unwrap();
    for (path, content) in IGNORED {
        person.write(Path::new("project").join(path), content);
    }
}

/// A shell at a terminal, in which lines are typed one after the other.
struct Shell {
    terminal: Terminal,
    typed: usize,
}

impl Shell {
    fn start(person: &Person, path: &str, model: &str) -> Self {
        let rc = person.write(
            "home/.bashrc",
            "PS1='ready-\\#-$?-\\n'\nPS2='more '\nPROMPT_COMMAND=\nbind 'set enable-bracketed-paste off'\n",
        );
        let rc = rc.to_str().unwrap();
        let variables = [["PATH", path], ["ANTHROPIC_BASE_URL", model]];
        let terminal = Terminal::run_program_with(
            person,
            "bash",
            &["--noprofile", "--rcfile", rc, "-i"],
            &variables,
        );
        terminal.see("ready-1-0-");
        Self { terminal, typed: 0 }
    }

    /// Types a line, answers what is asked with `answers` in order, and gives what was shown and the exit code.
    fn type_line(&mut self, line: &str, answers: &[Answer<'_>]) -> (String, i32) {
        self.typed += 1;
        let before = self.terminal.text().len();
        self.terminal.type_keys(&format!("{line}\n"));
        let shown = |shell: &Self| shell.terminal.text()[before..].to_owned();
        let mut after = 0;
        for answer in answers {
            let is_asked = wait_until(PATIENCE, || shown(self)[after..].contains(answer.question));
            assert!(
                is_asked,
                "`{line}` does not ask `{}`: {}",
                answer.question,
                shown(self)
            );
            let text = shown(self);
            after += text[after..].find(answer.question).unwrap() + answer.question.len();
            self.terminal.type_keys(answer.keys);
        }
        let prompt = format!("ready-{}-", self.typed + 1);
        let is_over = wait_until(PATIENCE, || {
            let text = shown(self);
            text.split_once(&prompt)
                .is_some_and(|(_, rest)| rest.contains("-\r"))
        });
        assert!(is_over, "`{line}` does not end: {}", shown(self));
        let text = shown(self);
        let (said, rest) = text.split_once(&prompt).unwrap();
        let code = rest.split('-').next().unwrap().parse().unwrap();
        (said.to_owned(), code)
    }
}

/// What is typed when something is asked.
#[derive(Clone, Copy)]
struct Answer<'a> {
    question: &'a str,
    keys: &'a str,
}

const YES: Answer<'static> = Answer {
    question: "apply to ",
    keys: "y\n",
};

const NO: Answer<'static> = Answer {
    question: "apply to ",
    keys: "n\n",
};

/// How a line of the tour is gone through.
enum Part<'a> {
    /// It is typed, asks this, and says that; its exit code is 0.
    Typed(&'a [Answer<'a>], &'a [&'a str]),
    /// It is not, because this is not there.
    LeftOut(&'static str),
}

/// What becomes of each line. A line that is not known fails the test.
fn part(command: &str, has_claude: bool, has_cargo: bool) -> Part<'static> {
    use Part::{LeftOut, Typed};
    const PROMPT: &str = "/workspace$ ";
    match command {
        "glovebox agent --sandbox \"make the tests pass\"" => {
            Typed(&[YES], &["the tests pass", "M greet.js"])
        }
        "glovebox sessions resume last \"now the docs\"" => {
            Typed(&[YES], &["documented", "A docs.md"])
        }
        "claude mcp add glovebox -- glovebox mcp" if !has_claude => {
            LeftOut("Claude Code is not installed")
        }
        "claude mcp add glovebox -- glovebox mcp" => Typed(&[], &["glovebox"]),
        "glovebox call Grep '{\"pattern\":\"TODO\"}'" => Typed(&[], &["notes.md"]),
        "glovebox run -- npm test" => Typed(&[], &["HELLO!"]),
        "glovebox run -- bash" => Typed(
            &[Answer {
                question: PROMPT,
                keys: "ls -A; cat .env; echo $((40 + 2))\nexit\n",
            }],
            &["node_modules", "42", "No such file"],
        ),
        "glovebox run --timeout 10m --memory 2GiB -- cargo test --offline" if !has_cargo => {
            LeftOut("no Rust toolchain is visible to this user")
        }
        "glovebox run --timeout 10m --memory 2GiB -- cargo test --offline" => {
            Typed(&[], &["test result: ok"])
        }
        "glovebox run --net egress --allow npm -- npm install" => {
            Typed(&[NO], &["A package-lock.json"])
        }
        "glovebox serve" => LeftOut("it runs until it is interrupted; tests/serve uses it"),
        "glovebox bundle check agents.js" => Typed(&[], &["nothing wrong", "greet"]),
        "glovebox bundle call agents.js greet '{\"name\":\"you\"}'" => {
            Typed(&[], &["\"hello you\""])
        }
        "glovebox run --apply auto -- ./agent.sh" => Typed(&[], &["applied to "]),
        "glovebox run --patch fix.patch -- ./agent.sh" => Typed(&[], &["fix.patch"]),
        "glovebox start work" | "glovebox list" => Typed(&[], &["work"]),
        "glovebox exec work -- npm run build" => Typed(&[], &["node build.js"]),
        "glovebox exec --json work -- npm test" => Typed(&[], &["HELLO!", "\"exit_code\""]),
        "glovebox attach work" => Typed(
            &[
                Answer {
                    question: PROMPT,
                    keys: "git add public && git commit -qm inside && echo commit-$((1 + 1))\n",
                },
                Answer {
                    question: "commit-2",
                    keys: "\x1c",
                },
            ],
            &[],
        ),
        "glovebox diff work" => Typed(&[], &["public/bundle.js", "// built"]),
        "glovebox pull work" => Typed(&[], &["public/bundle.js"]),
        "glovebox pull work --commits" => Typed(&[], &["branch"]),
        "export ANTHROPIC_API_KEY=..."
        | "cat data.csv | glovebox run -- python3 clean.py > clean.csv"
        | "glovebox stop work"
        | "glovebox kill work" => Typed(&[], &[]),
        "glovebox doctor" => Typed(&[], &["native"]),
        "glovebox run --explain -- true" => Typed(&[], &["mounts, in order", "/workspace"]),
        other => panic!("the tour has a line that this test does not know: {other}"),
    }
}

#[test]
fn the_tour_of_the_readme_ends_with_the_right_files_and_nothing_else() {
    if !["bash", "git", "npm", "node", "python3"]
        .into_iter()
        .all(has_program)
    {
        skip!("needs bash, git, npm, node and python3");
    }
    let claude = installed("hosts/node_modules/.bin/claude");
    Person::each(|person| {
        clone_project(person);
        let before = tree(&person.project());
        let model = ModelServer::replying(reply);
        // The program is found by its name, as after an installation.
        let own = person.binary().parent().unwrap().display();
        let hosts = claude.as_deref().and_then(Path::parent);
        let hosts = hosts.map_or_else(String::new, |dir| format!(":{}", dir.display()));
        let path = format!("{own}:/usr/local/bin:/usr/bin:/bin{hosts}");
        let mut shell = Shell::start(person, &path, &model.url());
        let has_cargo = shell.type_line("command -v cargo", &[]).1 == 0;
        let has_claude = shell.type_line("command -v claude", &[]).1 == 0;
        for (line, command) in lines() {
            match part(&command, has_claude, has_cargo) {
                Part::LeftOut(why) => println!("left out: {line} ({why})"),
                Part::Typed(answers, said) => {
                    let (text, code) = shell.type_line(&line, answers);
                    assert_eq!(code, 0, "{line}: {text}");
                    for word in said {
                        assert!(text.contains(word), "{line}: no `{word}`: {text}");
                    }
                }
            }
        }
        shell.terminal.type_keys("exit\n");
        assert_eq!(shell.terminal.end(), 0);

        let mut expected = before;
        let mut put = |path: &str, content: &str| {
            expected.insert(path.into(), content.to_owned());
        };
        put("greet.js", "module.exports = () => 'hello';\n");
        put("docs.md", "say hello\n");
        put("clean.csv", "one,1\ntwo,2\n");
        put("log.txt", "line\n");
        put("public/bundle.js", "// built\n");
        expected.remove(Path::new("old.txt"));
        let mut found = tree(&person.project());
        let patch = found.remove(Path::new("fix.patch"));
        assert!(
            patch.is_some_and(|patch| patch.contains("+line\n")),
            "{found:?}"
        );
        assert_eq!(found, expected);
        // What was committed inside is a branch, and nothing of the repository was touched besides.
        let branches = git(person, &["branch", "--format=%(refname:short)"]);
        assert_eq!(branches.lines().count(), 2, "{branches}");
        assert!(
            branches.lines().any(|branch| branch == "main"),
            "{branches}"
        );
        assert_eq!(git(person, &["log", "--format=%s", "main"]), "begin\n");
        let all = git(person, &["log", "--format=%s", "--all"]);
        assert!(all.starts_with("inside\n"), "{all}");
        let _ = person.line("kill --all -q").run().expect_code(0);
        person.assert_nothing_lives();
    });
}
