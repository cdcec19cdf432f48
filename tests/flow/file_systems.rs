//! Projects and state directories on file systems that cannot be layers of a sandbox.
//!
//! Each is mounted in a mount namespace of the test's own, in which Glovebox is started.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use testkit::{Person, Ran, has_program, skip};

/// Mounts an overlay over `$1` whose upper layer is in memory, as a container's own files are.
const OVERLAY: &str = "mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work && \
    chown --reference=\"$1\" /mnt/upper && mount -t overlay none \
    -o lowerdir=\"$1\",upperdir=/mnt/upper,workdir=/mnt/work \"$1\"";
/// Mounts a file system in user space over `$1` that shows what is there.
const FUSE: &str = "mount --bind \"$1\" /mnt && mount -t tmpfs none \"$1\" && bindfs /mnt \"$1\"";
/// Mounts an exFAT file system over `$1` whose files belong to the user `$2`.
const EXFAT: &str = "mount -t tmpfs none /mnt && truncate -s 32M /mnt/image && mkfs.exfat /mnt/image >/dev/null && \
    { disk=$(losetup --find --show /mnt/image) || exit 98; } && \
    mount.exfat-fuse -o uid=$2,gid=$2,allow_other $disk \"$1\" >/dev/null && losetup --detach $disk";
/// Runs the words after the first two as the user `$2`, then shows what the project has.
const RUN: &str = "at=$1; as=$2; cd \"$3\"; shift 3; \
    setpriv --reuid $as --regid $as --clear-groups \"$@\"; code=$?; echo \"-- exit $code\"; \
    for file in a.txt e/b; do echo \"$file: $(tail -n 1 $file 2>/dev/null)\"; done; \
    find . -name '.glovebox-*'; cd /; umount \"$at\" || umount -l \"$at\"";

/// What is mounted where, as somebody uses it.
struct MountedPlace<'a> {
    person: &'a Person,
    /// The script that mounts it over a directory.
    mount: &'a str,
    /// The directory.
    at: &'a Path,
}

impl MountedPlace<'_> {
    /// Runs `glovebox WORDS -- sh -c SCRIPT` with it mounted, and shows the exit code and the project afterwards.
    fn glovebox(&self, words: &str, script: &str) -> Ran {
        let call = self.person.script(words, script);
        let mut argv = vec![self.person.binary().as_os_str()];
        argv.extend(call.command.get_args());
        self.run(&argv)
    }

    /// As [`Self::glovebox`], with any program.
    fn run<S: AsRef<OsStr>>(&self, argv: &[S]) -> Ran {
        let user = if self.person.is_root() { "0" } else { "65534" };
        let mut call = self.person.glovebox(["version"]);
        let mut command = Command::new("unshare");
        command.env_clear();
        let script = format!("{{ {}; }} || exit 99; {RUN}", self.mount);
        command.args(["--mount", "sh", "-c", &script, "sh"]);
        command.arg(self.at).arg(user).arg(self.person.project());
        command.args(argv);
        for (name, value) in call.command.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        call.command = command;
        let ran = call.run();
        assert_ne!(ran.code, 99, "it could not be mounted: {ran}");
        ran
    }
}

/// Makes a git project with a file and a directory.
fn make_project(person: &Person) {
    let script = "git init -q . && echo one > a.txt && mkdir d && echo b > d/b && git add -A && \
        git -c user.name=a -c user.email=a@example.org commit -qm base";
    super::workspace::on_the_host(person, &person.project(), script);
}

/// Tries both persons with a fresh project, on an overlay and on FUSE.
fn each_mounted(mut test: impl FnMut(&Person, &str, &str)) {
    if !testkit::is_root() || !has_program("setpriv") {
        skip!("needs root and setpriv");
    }
    Person::each(|person| {
        for (name, mount) in [("overlay", OVERLAY), ("FUSE", FUSE)] {
            if name == "FUSE" && !(has_program("bindfs") && Path::new("/dev/fuse").exists()) {
                skip!("needs bindfs and /dev/fuse");
            }
            super::workspace::on_the_host(person, &person.project(), "rm -rf .git * .gitignore");
            make_project(person);
            test(person, name, mount);
        }
    });
}

const WORK: &str = "echo two >> a.txt && mkdir e && mv d/b e && rmdir d && git status --short";
const DONE: &str = "-- exit 0\na.txt: two\ne/b: b\n";

/// A project on a file system whose owners cannot be translated is copied where that is needed, and told; a user
/// without privileges needs no translation.
#[test]
fn project_without_id_maps_is_copied_for_root() {
    each_mounted(|person, name, mount| {
        let project = person.project();
        let place = MountedPlace {
            person,
            mount,
            at: &project,
        };
        let ran = place.glovebox("run --apply auto", WORK);
        assert!(ran.out().ends_with(DONE), "{name}: {ran}");
        assert!(ran.out().contains("M a.txt"), "{name}: {ran}");
        let line =
            format!("the project lies on {name}, which cannot translate owners: it is copied");
        assert_eq!(ran.err().contains(&line), person.is_root(), "{name}: {ran}");
        if person.is_root() {
            let ran = place.glovebox("run --workspace overlay", "true");
            assert!(ran.out().contains("-- exit 125"), "{name}: {ran}");
            assert!(
                ran.err().contains("leave out `--workspace overlay`"),
                "{name}: {ran}"
            );
        }
    });
}

/// Where layers cannot lie in the state directory, they are in memory, and so is the copy of the project; what is
/// parked there comes back all the same.
#[test]
fn state_that_holds_no_layers_keeps_them_in_memory() {
    each_mounted(|person, name, mount| {
        let project = person.project();
        let state = person.place().state();
        let mount = format!("mkdir -p \"$1\" && chown $2:$2 \"$1\" && chmod 700 \"$1\" && {mount}");
        let place = MountedPlace {
            person,
            mount: &mount,
            at: &state,
        };
        let ran = place.glovebox("run --apply auto", WORK);
        assert!(ran.out().ends_with(DONE), "{name}: {ran}");
        let line = format!("the state directory lies on {name}, which cannot hold layers");
        assert!(ran.err().contains(&line), "{name}: {ran}");
        assert!(!ran.err().contains("not taken down"), "{name}: {ran}");

        let script = format!(
            "cd {project}; g={program}; $g run -- sh -c 'echo three >> a.txt; rm e/b'; \
             box=$($g list | sed -n 's/^\\(run-[^ ]*\\).*/\\1/p'); \
             $g start -q $box && $g exec $box -- sh -c 'cat a.txt; ls; echo four >> a.txt' && \
             $g pull -q $box; $g kill -q $box",
            project = project.display(),
            program = person.binary().display()
        );
        let ran = place.run(&["sh", "-c", &script]);
        assert!(
            ran.out().starts_with("one\ntwo\nthree\na.txt\ne\n"),
            "{name}: {ran}"
        );
        assert!(
            ran.out().ends_with("-- exit 0\na.txt: four\ne/b: \n"),
            "{name}: {ran}"
        );
    });
}

/// On a file system without owners, modes and links a pull brings what it can and names the rest; nothing of Glovebox's
/// stays there.
#[test]
fn pull_without_owners_modes_and_links_names_what_stays() {
    let needed = ["setpriv", "mkfs.exfat", "losetup", "mount.exfat-fuse"];
    if !testkit::is_root() || !needed.iter().all(|program| has_program(program)) {
        skip!("needs root, {needed:?}");
    }
    Person::each(|person| {
        let project = person.project();
        let place = MountedPlace {
            person,
            mount: EXFAT,
            at: &project,
        };
        let script = format!(
            "g={program}; git init -q . && git config core.fileMode false && echo one > a.txt && mkdir d && \
             echo b > d/b && echo gone > c.txt && git add -A && \
             git -c user.name=a -c user.email=a@example.org commit -qm base && $g start -q work && \
             $g exec work -- sh -c 'echo two >> a.txt; rm c.txt; mkdir e; mv d/b e/b; rmdir d; ln -s a.txt link' && \
             $g pull work; echo \"pull $?\"; ls; $g kill -q work",
            program = person.binary().display()
        );
        let ran = place.run(&["sh", "-c", &script]);
        if ran.code == 98 {
            skip!("needs a loop device");
        }
        assert!(
            ran.out()
                .ends_with("a.txt\ne\n-- exit 0\na.txt: two\ne/b: b\n"),
            "{ran}"
        );
        assert!(
            ran.err().contains(
                "link: a symbolic link, which the file system of the project cannot hold"
            ),
            "{ran}"
        );
    });
}
