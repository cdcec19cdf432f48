//! The disk is full, on a small file system of the test's own.

use crate::{alone, assert_all_dead, assert_in_words};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testkit::{Glovebox, Person, SkipReason, UNPRIVILEGED_ID, has_program, is_root, skip_because};

/// Size of the file system.
const DISK_MIB: u32 = 24;

/// A small file system, mounted where only a process of its own and what enters its mount
/// namespace can see it. It is gone when that process is.
struct SmallDisk<'a> {
    person: &'a Person,
    holder: Child,
    place: PathBuf,
}

impl<'a> SmallDisk<'a> {
    /// Mounts one over `place`, owned by the person.
    fn mount(person: &'a Person, place: PathBuf) -> Result<Self, String> {
        const MOUNT: &str = "truncate -s \"$1M\" \"$2\" && mkfs.ext4 -q -F -m 0 \"$2\" && mount -o loop \"$2\" \"$3\" && \
            chown \"$4:$4\" \"$3\" && chmod 700 \"$3\" && echo mounted && exec cat";
        let owner = if person.is_root() { 0 } else { UNPRIVILEGED_ID };
        let image = person.place().root().join("disk.img");
        let mut holder = Command::new("unshare")
            .args(["--mount", "sh", "-c", MOUNT, "sh", &DISK_MIB.to_string()])
            .args([&image, &place])
            .arg(owner.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut line = String::new();
        let stdout = holder.stdout.take().ok_or("no output")?;
        BufReader::new(stdout)
            .read_line(&mut line)
            .map_err(|error| error.to_string())?;
        if line != "mounted\n" {
            let output = holder
                .wait_with_output()
                .map_err(|error| error.to_string())?;
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        Ok(Self {
            person,
            holder,
            place,
        })
    }

    /// A call where the file system can be seen.
    fn enter(&self, mut call: Glovebox) -> Glovebox {
        const GO: &str = "cd \"$1\" && shift && exec \"$@\"";
        let inner = &call.command;
        let mut command = Command::new("nsenter");
        command.args([
            "--mount",
            "--target",
            &self.holder.id().to_string(),
            "sh",
            "-c",
            GO,
            "sh",
        ]);
        command.arg(inner.get_current_dir().unwrap_or(Path::new("/")));
        if !self.person.is_root() {
            let id = UNPRIVILEGED_ID.to_string();
            command.args(["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"]);
        }
        command
            .arg(inner.get_program())
            .args(inner.get_args())
            .env_clear();
        command.envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        call.command = command;
        call
    }

    fn line(&self, line: &str) -> Glovebox {
        self.enter(self.person.line(line))
    }

    fn script(&self, args: &str, script: &str) -> Glovebox {
        self.enter(self.person.script(args, script))
    }

    /// Does something to the file system itself, as root.
    fn shell(&self, script: &str) -> String {
        let output = Command::new("nsenter")
            .args([
                "--mount",
                "--target",
                &self.holder.id().to_string(),
                "sh",
                "-c",
                script,
                "sh",
            ])
            .arg(&self.place)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn fill(&self) {
        self.shell("cat /dev/zero > \"$1/fill\"; i=0; while : > \"$1/fill$i\" && echo x > \"$1/fill$i\"; do i=$((i+1)); done");
    }

    fn free(&self) {
        self.shell("rm \"$1\"/fill*");
    }

    fn assert_nothing_left(&self) {
        let left = self.shell("ls \"$1/sandboxes\"");
        assert!(left.is_empty(), "left behind: {left}");
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = self.line("kill --all --quiet").run();
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A reason to skip, or the test once per person with its disk.
fn each(
    place: impl Fn(&Person) -> PathBuf,
    test: impl Fn(&SmallDisk<'_>),
) -> Result<(), SkipReason> {
    if !is_root() {
        return Err(SkipReason::needs_root("to mount a small file system"));
    }
    for program in ["mkfs.ext4", "unshare", "nsenter", "setpriv"] {
        if !has_program(program) {
            return Err(format!("needs {program}").into());
        }
    }
    let mut outcome = Ok(());
    Person::each(|person| match SmallDisk::mount(person, place(person)) {
        Ok(disk) => {
            test(&disk);
            drop(disk);
            assert_all_dead("a full disk");
        }
        Err(reason) => {
            outcome = Err(format!("cannot mount a small file system: {reason}").into());
        }
    });
    outcome
}

fn state(person: &Person) -> PathBuf {
    person.place().state()
}

#[test]
fn nothing_starts_on_a_full_disk_and_everything_after_it() {
    let _alone = alone();
    let outcome = each(state, |disk| {
        let _ = disk.line("run --quiet -- true").run().expect_code(0);
        disk.fill();
        for (line, code) in [
            ("run --quiet -- true", 125),
            ("start box", 1),
            ("run --keep box -- true", 125),
        ] {
            let ran = disk.line(line).run().expect_code(code);
            assert_in_words(ran.code, &ran.err(), line);
            assert!(
                ran.err().contains("No space left on device"),
                "{line}: {ran}"
            );
        }
        // Looking around and cleaning up need no space.
        let _ = disk.line("list").run().expect_code(0);
        let _ = disk.line("kill box").run().expect_code(0);
        disk.free();
        let _ = disk.line("run --quiet -- true").run().expect_code(0);
        let doctor = disk.line("doctor --json").run();
        assert!(doctor.out().contains(r#""orphans":[]"#), "{doctor}");
        disk.assert_nothing_left();
    });
    if let Err(reason) = outcome {
        skip_because!(reason);
    }
}

#[test]
fn a_new_state_directory_on_a_full_disk() {
    let _alone = alone();
    let outcome = each(state, |disk| {
        disk.fill();
        let ran = disk.line("run --quiet -- true").run().expect_code(125);
        assert_in_words(ran.code, &ran.err(), "run");
        assert!(ran.err().contains("No space left on device"), "{ran}");
        disk.free();
        let _ = disk.line("run --quiet -- true").run().expect_code(0);
        disk.assert_nothing_left();
    });
    if let Err(reason) = outcome {
        skip_because!(reason);
    }
}

#[test]
fn a_command_that_fills_the_disk_is_told() {
    let _alone = alone();
    let outcome = each(state, |disk| {
        let script =
            "head -c 60000000 /dev/zero > big; echo code $?; rm big; echo small > small; cat small";
        let ran = disk.script("run --quiet", script).run().expect_code(0);
        assert!(
            ran.out().ends_with("small\n") && !ran.out().contains("code 0"),
            "{ran}"
        );
        assert!(ran.err().contains("No space left on device"), "{ran}");
        // What is small enough is kept, for nobody was asked about it.
        assert!(ran.err().contains("1 change is parked"), "{ran}");
        let _ = disk.line("kill --all").run().expect_code(0);

        // A named sandbox on a full disk still works, is listed, and can be killed.
        let _ = disk.line("start box").run().expect_code(0);
        let _ = disk
            .script("exec box", "cat /dev/zero > big 2>/dev/null; true")
            .run()
            .expect_code(0);
        let ran = disk
            .script("exec box", "yes | head -c 5000000")
            .run()
            .expect_code(0);
        assert_eq!(ran.stdout.len(), 5_000_000);
        let list = disk.line("list --json").run().expect_code(0);
        assert!(list.out().contains(r#""state":"ready""#), "{list}");
        let _ = disk.line("kill box").run().expect_code(0);
        let _ = disk.line("run --quiet -- true").run().expect_code(0);
        disk.assert_nothing_left();
    });
    if let Err(reason) = outcome {
        skip_because!(reason);
    }
}

#[test]
fn a_full_project_can_be_worked_on() {
    let _alone = alone();
    let outcome = each(testkit::Person::project, |disk| {
        disk.shell("echo mine > \"$1/notes\"; chown --reference=\"$1\" \"$1/notes\"");
        disk.fill();
        let ran = disk.script(
            "run --quiet",
            "cat notes; head -c 2000000 /dev/zero > new; wc -c < new; echo x >> notes",
        );
        assert_eq!(ran.run().expect_code(0).out(), "mine\n2000000\n");
        assert_eq!(disk.shell("cat \"$1/notes\""), "mine\n");
    });
    if let Err(reason) = outcome {
        skip_because!(reason);
    }
}

/// Fills what is left of the disk from inside, outside of the workspace. Not with `:`, for a shell ends when a special
/// builtin cannot be redirected (POSIX.1-2024, XCU 2.8.1).
const FILL: &str = "cat /dev/zero > /tmp/fill 2>/dev/null; i=0; \
                    while true > /tmp/fill$i && echo x > /tmp/fill$i; do i=$((i+1)); done 2>/dev/null; true";

#[test]
fn changes_that_cannot_be_parked_for_want_of_room_are_parked_later() {
    let _alone = alone();
    let outcome = each(state, |disk| {
        let _ = disk.line("run --quiet -- true").run().expect_code(0);
        disk.shell("head -c 2000000 /dev/zero > \"$1/fill\"");
        let script = format!("echo work > small; {FILL}");
        let ran = disk.script("run --quiet", &script).run();
        let said = ran.err();
        assert!(said.contains("1 change is not parked yet"), "{ran}");
        assert!(said.contains("No space left on device"), "{ran}");
        assert_eq!(ran.code, 125, "{ran}");
        let pull = said
            .split('`')
            .find(|word| word.starts_with("glovebox pull"));
        let name = pull.and_then(|call| call.split(' ').nth(2)).unwrap();
        // Looking does not drop them, and neither does another run.
        let _ = disk.line("list").run().expect_code(0);
        let _ = disk.line("run --quiet -- true").run().expect_code(125);
        disk.free();
        let list = disk.line("list").run().expect_code(0);
        assert!(list.out().contains(name), "{list}");
        let pull = format!("pull {name}");
        let _ = disk.line(&pull).run().expect_code(0);
        let taken = std::fs::read_to_string(disk.person.project().join("small")).unwrap();
        assert_eq!(taken, "work\n");
        let _ = disk.line("kill --all").run();
        disk.assert_nothing_left();
    });
    if let Err(reason) = outcome {
        skip_because!(reason);
    }
}

#[test]
fn a_cache_that_cannot_be_kept_leaves_the_one_there_was() {
    let _alone = alone();
    let outcome = each(state, |disk| {
        let person = disk.person;
        person.write("project/Cargo.toml", "[package]\n");
        person.write("project/.gitignore", "/target\n");
        let keep = |text: &str| {
            format!(
                "mkdir -p target; echo {text} > target/{text}; echo {text} > ~/.npm/_cacache/{text}"
            )
        };
        let look = "cd target; ls; ls ~/.npm/_cacache";
        let run = "run --cache --apply never";
        let _ = disk.script(run, &keep("one")).run().expect_code(0);
        let script = format!("{}; {FILL}", keep("two"));
        let ran = disk.script(run, &script).run().expect_code(0);
        let said = ran.err();
        let is_told = |line: &str| line.starts_with("warning") && line.contains("No space left");
        assert!(said.lines().any(is_told), "{ran}");
        let ran = disk.script(run, look).run().expect_code(0);
        assert_eq!(ran.out(), "one\none\n", "{ran}");
        let _ = disk.script(run, &keep("three")).run().expect_code(0);
        let ran = disk.script(run, look).run().expect_code(0);
        assert_eq!(ran.out(), "one\nthree\none\nthree\n", "{ran}");
        let doctor = disk.line("doctor --json").run();
        assert!(doctor.out().contains(r#""orphans":[]"#), "{doctor}");
        disk.assert_nothing_left();
    });
    if let Err(reason) = outcome {
        skip_because!(reason);
    }
}
