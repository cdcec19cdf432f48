//! Destructive commands: whatever they do inside, outside nothing changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use testkit::{Canary, Person};

/// Everything a machine has that a careless or malicious script goes for, all at once.
const SCRIPTS: [&str; 6] = [
    "rm -rf /workspace/* /workspace/.[!.]* ~ ~/.[!.]* /usr /etc /var /tmp /home /root /opt /srv /bin /lib /lib64 /sbin; true",
    "cd / && rm -rf --no-preserve-root / 2>/dev/null; true",
    "find /workspace ~ /etc /var /srv /opt -xdev -type f -exec sh -c 'for f; do : > \"$f\"; done' _ {} + 2>/dev/null; true",
    "chmod -R 000 /workspace ~ /usr /etc 2>/dev/null; chown -R 12345 /workspace ~ /usr/bin 2>/dev/null; true",
    "for d in /workspace ~ /usr/bin /etc; do mv $d/* /tmp/ 2>/dev/null; ln -sfn /etc/passwd $d/link 2>/dev/null; done; true",
    "for p in \"$@\"; do rm -rf \"$p\"; mkdir -p \"$p\"; echo gone > \"$p/file.txt\"; mount -t tmpfs none \"$p\"; done 2>/dev/null; true",
];

/// One line per sampled file of the machine itself: name, mode, owner, times, content.
fn machine() -> Vec<String> {
    let mut files: Vec<PathBuf> = Vec::new();
    for (dir, count) in [
        ("/etc", 120),
        ("/usr/bin", 60),
        ("/usr/lib", 40),
        ("/usr/share", 20),
        ("/bin", 10),
    ] {
        let Ok(entries) = fs::read_dir(dir) else {
            continue;
        };
        let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        found.sort();
        files.extend(found.into_iter().take(count));
    }
    // What others write while the tests run is no witness.
    files.retain(|path| !path.ends_with("ld.so.cache") && !path.ends_with("mtab"));
    files.iter().map(|path| line(path)).collect()
}

fn line(path: &Path) -> String {
    let Ok(stat) = path.symlink_metadata() else {
        return format!("{} is gone", path.display());
    };
    let content = if stat.is_file() && stat.len() < 4 << 20 {
        fs::read(path)
            .map(|bytes| blake3::hash(&bytes).to_hex().to_string())
            .unwrap_or_default()
    } else {
        String::new()
    };
    let (mode, owner, group, changed) = (stat.mode(), stat.uid(), stat.gid(), stat.ctime());
    format!(
        "{} {mode:o} {owner}:{group} {changed} {content}",
        path.display()
    )
}

#[test]
fn the_host_is_exactly_as_it_was() {
    Person::each(|person| {
        let place = person.place();
        let trees = [
            place.project(),
            place.home(),
            place.root().join("elsewhere"),
        ];
        for tree in &trees {
            let _ = Canary::plant(tree.clone());
            person.own(tree);
        }
        // Toolchains of the home are shown inside, so they are in reach.
        person.write("home/.cargo/bin/tool", "#!/bin/sh\n");
        person.write("home/.pyenv/version", "3\n");
        person.write("home/.ssh/id_ed25519", "secret\n");
        let canaries: Vec<Canary> = trees.iter().map(Canary::watch).collect();
        let machine_before = machine();
        let paths: Vec<&str> = trees.iter().filter_map(|tree| tree.to_str()).collect();
        for script in SCRIPTS {
            for flags in ["run --quiet", "run --quiet --rootfs host-all"] {
                let ran = person.script(flags, script).args(["sh"]).args(&paths).run();
                // The shell may lose the ground under its feet; glovebox must not.
                assert!(
                    !ran.err().contains("panicked") && ran.code != 125,
                    "{flags} {script}\n{ran}"
                );
                canaries.iter().for_each(Canary::assert_untouched);
            }
        }
        for (before, after) in machine_before.iter().zip(machine()) {
            assert_eq!(*before, after);
        }
        // What they changed inside is parked, for nobody said that it may go.
        let _ = person.line("kill --all").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn the_destruction_is_real_inside() {
    Person::each(|person| {
        let _ = Canary::plant(person.project());
        person.own(&person.project());
        let canary = Canary::watch(person.project());
        let script = "rm -rf /workspace/* /workspace/.[!.]*; ls -A /workspace | wc -l; echo new > file.txt; cat file.txt";
        let ran = person.script("run --quiet", script).run().expect_code(0);
        assert_eq!(ran.out(), "0\nnew\n");
        canary.assert_untouched();
    });
}

#[test]
fn a_sandbox_that_wrecked_itself_can_still_be_removed() {
    Person::each(|person| {
        let _ = Canary::plant(person.project());
        person.own(&person.project());
        let canary = Canary::watch(person.project());
        let _ = person.line("start box").run().expect_code(0);
        let script = "mkdir -p a/b/c ~/x; chmod 000 a ~/x /workspace/deep; rm -rf /usr /etc /tmp/* 2>/dev/null; \
                      i=0; while [ $i -lt 150 ]; do mkdir d && cd d || exit 0; i=$((i+1)); done; chmod 000 .";
        let _ = person.script("exec box", script).run();
        let _ = person.line("kill box").run().expect_code(0);
        canary.assert_untouched();
        person.assert_nothing_left();
    });
}
