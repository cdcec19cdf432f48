//! What files are besides their content comes back too: holes and groups; and what is nowhere else can be put back.

use super::workspace::host;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use testkit::{Person, has_program, skip};

fn allocated_bytes(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn holes_stay_holes_whichever_way_files_go() {
    const BYTES: u64 = 64 << 20;
    const WORK: &str = "truncate -s 64M end.img && printf x | dd of=end.img bs=1 conv=notrunc status=none && \
        truncate -s 64M all.img && cp end.img sub.img && \
        printf x | dd of=old.img bs=1 seek=40000000 conv=notrunc status=none";
    Person::each(|person| {
        host(person, "truncate -s 64M old.img");
        if allocated_bytes(&person.project().join("old.img")) > 1 << 20 {
            skip!("needs a file system with holes");
        }
        let names = ["end.img", "all.img", "old.img"];
        let check = |dir: &Path, way: &str| {
            for name in names {
                let path = dir.join(name);
                assert_eq!(fs::metadata(&path).unwrap().len(), BYTES, "{way} {name}");
                let bytes = allocated_bytes(&path);
                assert!(bytes < 1 << 20, "{way} {name}: {bytes} bytes");
            }
            assert_eq!(fs::read(dir.join("end.img")).unwrap()[0], b'x', "{way}");
            let old = fs::read(dir.join("old.img")).unwrap();
            assert_eq!(old[40_000_000], b'x', "{way}");
        };
        for flags in ["", "--workspace copy"] {
            person
                .line(&format!("start --quiet {flags} box"))
                .run()
                .expect_code(0);
            // What went in as a copy has its holes there.
            let inside = person
                .script("exec --quiet box", "du -k old.img | cut -f1")
                .run();
            let kib: u64 = inside.expect_code(0).out().trim().parse().unwrap();
            assert!(kib < 1024, "{flags}: {kib} KiB inside");
            person.script("exec --quiet box", WORK).run().expect_code(0);
            let out = person.place().root().join("home/copied");
            fs::create_dir(&out).unwrap();
            person.own(&out);
            for name in names {
                let to = out.join(name);
                let copy = ["cp", &format!("box:{name}"), to.to_str().unwrap()];
                person.glovebox(copy).run().expect_code(0);
            }
            check(&out, "cp");
            let from = out.join("end.img");
            let again = ["cp", from.to_str().unwrap(), "box:again.img"];
            person.glovebox(again).run().expect_code(0);
            let inside = person
                .script(
                    "exec --quiet box",
                    "du -k again.img | cut -f1; cmp again.img end.img",
                )
                .run();
            let kib: u64 = inside.expect_code(0).out().trim().parse().unwrap();
            assert!(kib < 1024, "{flags}: {kib} KiB copied in");
            person.line("pull --quiet box").run().expect_code(0);
            check(&person.project(), flags);
            person.line("kill --quiet box").run().expect_code(0);
            fs::remove_dir_all(&out).unwrap();
            host(person, "rm *.img; truncate -s 64M old.img");
        }
    });
}

#[test]
fn groups_are_those_that_the_directory_gives() {
    Person::each(|person| {
        let groups = host(person, "id -G");
        let own = host(person, "id -g");
        let other = groups.split_whitespace().find(|group| *group != own.trim());
        let other = match (other, person.is_root()) {
            (Some(other), _) => other.to_owned(),
            (None, true) => "4321".to_owned(),
            // Who is in one group only cannot have files of another.
            (None, false) => return,
        };
        let make = format!(
            "mkdir shared plain && echo a | tee f shared/f plain/f >/dev/null && chgrp {other} f shared shared/f && \
             chmod 2775 shared && chmod 664 f"
        );
        let work = "echo b >> f; echo b >> shared/f; echo b >> plain/f; mkdir shared/new; echo n > shared/new/in; \
            echo n > shared/n; echo n > plain/n; ln -s n shared/link";
        for flags in ["", "--workspace copy"] {
            host(person, &make);
            let run = format!("run --quiet --apply auto {flags}");
            person.script(&run, work).run().expect_code(0);
            for (name, wanted) in [
                ("f", other.as_str()),
                ("shared/f", &other),
                ("shared/new", &other),
                ("shared/new/in", &other),
                ("shared/n", &other),
                ("shared/link", &other),
                ("plain/f", own.trim()),
                ("plain/n", own.trim()),
            ] {
                let found = fs::symlink_metadata(person.project().join(name)).unwrap();
                assert_eq!(found.gid().to_string(), wanted, "{flags} {name}");
            }
            let mode = |name: &str| {
                let found = fs::metadata(person.project().join(name)).unwrap();
                found.permissions().mode() & 0o7777
            };
            assert_eq!(mode("shared/new") & 0o2000, 0o2000, "{flags}");
            assert_eq!(mode("f"), 0o664, "{flags}");
            host(person, "rm -rf f shared plain");
        }
    });
}

#[test]
fn new_gitignore_covers_what_the_host_does_not_have() {
    if !has_program("git") {
        skip!("needs git");
    }
    let work = "printf 'node_modules\\n*.o\\n!keep.o\\nbuild/\\n' > .gitignore; echo {} > package.json; \
        mkdir -p node_modules/a src/deep out build; for i in 1 2 3; do echo $i > node_modules/a/$i.js; done; \
        echo x > src/a.o; echo x > src/keep.o; echo x > src/deep/b.o; echo x > out/only.o; echo y >> had.o; \
        echo z > build/new; echo z >> build/tracked; printf '!c.o\\n' > src/.gitignore; echo x > src/c.o";
    Person::each(|person| {
        for flags in ["", "--workspace copy"] {
            host(
                person,
                "git init -q . && mkdir build && echo t > build/tracked && git add . && \
                 git -c user.name=T -c user.email=t@example.org commit -qm first && echo h > had.o",
            );
            let run = format!("run --apply auto {flags}");
            let ran = person.script(&run, work).run().expect_code(0);
            let list = "find . -path ./.git -prune -o -type f -print | sort | tr '\\n' ' '; find . -name deep -o -name out";
            let found = host(person, list);
            assert_eq!(
                found,
                "./.gitignore ./build/tracked ./had.o ./package.json ./src/.gitignore ./src/c.o ./src/keep.o ",
                "{flags}: {ran}"
            );
            assert_eq!(host(person, "cat had.o build/tracked"), "h\ny\nt\nz\n");
            assert!(
                ran.err().contains("the new .gitignore covers them"),
                "{ran}"
            );
            host(person, "rm -rf .git .gitignore * ");
            let run = format!("run --quiet --apply auto --ignored {flags}");
            person.script(&run, work).run().expect_code(0);
            assert!(person.project().join("node_modules/a/1.js").exists());
            host(person, "rm -rf .gitignore *");
        }
    });
}

#[test]
fn what_git_does_not_have_can_be_put_back() {
    if !has_program("git") {
        skip!("needs git");
    }
    const STATE: &str = "for f in *; do echo \"$f $(stat -c %a $f) $(cat $f 2>/dev/null | tr '\\n' ,)$(readlink $f)\"; done";
    let work = "echo box > notes; rm secret link; echo box >> edited; echo box >> clean; echo box > new; echo 2 > kept/in";
    Person::each(|person| {
        host(
            person,
            "git init -q . && git config user.name T && git config user.email t@example.org && \
             echo 1 > clean && echo 1 > edited && git add . && git commit -qm first && sleep 0.1 && \
             echo mine >> edited && echo mine > notes && echo hidden > secret && chmod 600 secret && \
             ln -s notes link && mkdir kept && echo 1 > kept/in && git update-index -q --refresh",
        );
        let before = host(person, STATE);
        let ran = person
            .script("run --apply auto --json", work)
            .run()
            .expect_code(0);
        assert!(ran.err().contains("5 of your files"), "{ran}");
        let text = ran.err();
        let id = text
            .split("--undo ")
            .nth(1)
            .unwrap()
            .split('`')
            .next()
            .unwrap();
        let applied = host(person, STATE);
        assert!(applied.contains("notes 644 box"), "{applied}");
        // The newest of this project, and the same by its name.
        let json = person.line("pull --undo --json").run().expect_code(0);
        let data: Value = serde_json::from_slice(&json.stdout).unwrap();
        let put_back = host(person, STATE);
        let less = |state: &str| -> Vec<String> {
            let lines = state.lines();
            let lines = lines.filter(|line| !line.starts_with("clean") && !line.starts_with("new"));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(less(&put_back), less(&before));
        // That was an apply too.
        let again = data["data"]["undo"]["id"].as_str().unwrap();
        person
            .line(&format!("pull --undo {again}"))
            .run()
            .expect_code(0);
        assert_eq!(host(person, "cat notes kept/in"), "box\n2\n");
        // What changed since is a conflict beside.
        host(person, "echo later > notes");
        let ran = person
            .line(&format!("pull --undo {id}"))
            .run()
            .expect_code(3);
        assert_eq!(
            host(person, "cat notes notes.theirs"),
            "later\nmine\n",
            "{ran}"
        );
        person.line("pull --undo nothing").run().expect_code(6);
        host(person, "rm -rf .git * ");
    });
}
