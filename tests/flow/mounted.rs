//! Projects with other file systems mounted in them.

use super::workspace::on_the_host;
use testkit::{Person, has_program, skip};

const MOUNT: &str = "mount -t tmpfs none \"$1\" && echo precious > \"$1/keep\" && chmod -R a+rwX \"$1\" && user=$2 && shift 2 && \
    exec setpriv --reuid $user --regid $user --clear-groups \"$@\"";

/// An overlay shows one file system: a project with another one mounted in it is copied, and nothing is lost.
#[test]
fn project_with_a_mount_is_shown_whole() {
    if !testkit::is_root() || !has_program("unshare") || !has_program("setpriv") {
        skip!("needs root, unshare and setpriv");
    }
    Person::each(|person| {
        let project = person.project();
        on_the_host(person, &project, "mkdir -p data && echo 1 > a");
        let user = if person.is_root() { "0" } else { "65534" };
        let mounted = |args: &str, script: &str| {
            // Its words after a wrapper that mounts.
            let mut call = person.script(args, script);
            let mut command = std::process::Command::new("unshare");
            command.env_clear().current_dir(&project);
            command.args(["--mount", "sh", "-c", MOUNT, "sh", "data", user]);
            command.arg(person.binary()).args(call.command.get_args());
            for (name, value) in call.command.get_envs() {
                command.env(name, value.unwrap_or_default());
            }
            command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
            call.command = command;
            call.run()
        };
        let ran = mounted("run --apply discard", "cat data/keep a").expect_code(0);
        assert_eq!(ran.out(), "precious\n1\n");
        assert!(ran.err().contains("the project is copied"), "{ran}");

        let work = "echo work > data/new; echo 2 >> a; rm data/keep";
        let ran = mounted("run --apply auto", work).expect_code(3);
        assert!(
            ran.err().contains("data/new could not be put beside it"),
            "{ran}"
        );
        assert_eq!(on_the_host(person, &project, "cat a"), "1\n2\n");
        let name = person.sandboxes().pop().unwrap();
        let name = name.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name.starts_with("run-"), "{name}");
        person.glovebox(["kill", "-q", &name]).run().expect_code(0);

        let refused = mounted("run --workspace overlay", "true").expect_code(125);
        assert!(
            refused.err().contains("mounted below the project: data"),
            "{refused}"
        );
    });
}
