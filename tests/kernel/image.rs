//! What the machine starts from: a kernel as Debian ships it, an initial RAM disk and a disk.
//!
//! Both are made of this machine's own programs and of what cargo has built. Nothing is installed in them.

use crate::checks::Check;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is needed to reach the disk, overlays, and quotas. A kernel may have any of it built in.
const MODULES: [&str; 4] = ["virtio_pci", "virtio_blk", "overlay", "quota_v2"];
/// Programs that the checks, and the commands they run in sandboxes, use.
const PROGRAMS: &str = "bash cat chmod chown chrt cp cut date dd echo env false find getcap grep head id keyctl \
    kill ldd ln ls mkdir mkfifo mknod mount mv nproc nsenter perl printf python3 readlink renice rm rmdir script \
    sed seq setcap setpriv setsid sh sha256sum sleep sort stat stty sync tail taskset test timeout touch tr true tty umount \
    uname unshare wc xargs";
/// Prints the files of Python's own library that the commands need: what is loaded once they have done the same.
const PYTHON_FILES: &str = "import array, multiprocessing, socket, sys, time; multiprocessing.Pool(1).map(abs, [1]); \
    files = {getattr(module, name, None) for module in list(sys.modules.values()) for name in ('__file__', '__cached__')}; \
    print(*filter(None, files), sep='\\n')";
/// Space for what is written inside.
const FREE_BYTES: u64 = 512 << 20;
/// Size of the second disk, whose file system has quotas of projects.
const QUOTA_DISK_BYTES: &str = "256M";

/// What this machine has to have.
pub(crate) struct Parts {
    kernel: PathBuf,
    /// The directory of its modules.
    modules: PathBuf,
    busybox: PathBuf,
}

impl Parts {
    /// Finds them, or says what is missing.
    pub(crate) fn find() -> Result<Self, String> {
        if cfg!(not(target_arch = "x86_64")) {
            return Err("the machine to be started has an x86-64 processor".to_owned());
        }
        for (name, package) in [
            ("qemu-system-x86_64", "qemu-system-x86"),
            ("mkfs.ext4", "e2fsprogs"),
            ("setpriv", "util-linux"),
            ("perl", "perl-base"),
        ] {
            if !testkit::has_program(name) {
                return Err(format!("needs {name} (package {package})"));
            }
        }
        let mut programs = PROGRAMS.split_whitespace();
        if let Some(missing) = programs.find(|name| find_program(name).is_none()) {
            return Err(format!("needs {missing}, to be copied into the machine"));
        }
        let busybox = find_program("busybox")
            .filter(|path| testkit::libraries([path]).is_empty())
            .ok_or("needs a static busybox (package busybox-static)")?;
        let kernel = testkit::installed("kernel/vmlinuz").ok_or(
            "needs a kernel of Debian, which `cargo xtask test` fetches where apt-get has one",
        )?;
        let modules = kernel.with_file_name("modules");
        Ok(Self {
            kernel,
            modules,
            busybox,
        })
    }
}

impl Parts {
    /// Files of [`MODULES`] and of what they need, which comes first: that differs between kernels.
    fn modules_in_order(&self) -> Vec<PathBuf> {
        fn add(name: &str, all: &BTreeMap<String, PathBuf>, ordered: &mut Vec<PathBuf>) {
            let Some(path) = all.get(name).filter(|path| !ordered.contains(path)) else {
                return;
            };
            for needed in needed_by(path) {
                add(&needed, all, ordered);
            }
            ordered.push(path.clone());
        }
        let mut all = BTreeMap::new();
        let mut pending = vec![self.modules.clone()];
        while let Some(dir) = pending.pop() {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    pending.push(path);
                } else if let Some(name) = path.file_stem() {
                    all.insert(name.to_string_lossy().into_owned(), path);
                }
            }
        }
        let mut ordered = Vec::new();
        for name in MODULES {
            add(name, &all, &mut ordered);
        }
        ordered
    }
}

/// Names of the modules that one says it depends on.
fn needed_by(module: &Path) -> Vec<String> {
    const FIELD: &[u8] = b"\0depends=";
    let bytes = fs::read(module).unwrap();
    let at = bytes.windows(FIELD.len()).position(|part| part == FIELD);
    let rest = at.map_or(&[][..], |at| &bytes[at + FIELD.len()..]);
    let names = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(names);
    names.split(',').map(str::to_owned).collect()
}

/// The files of one machine; removed when dropped.
pub(crate) struct Image {
    dir: tempfile::TempDir,
    kernel: PathBuf,
}

impl Image {
    /// Makes them, with the programs of these checks inside.
    pub(crate) fn make(parts: &Parts, checks: &[Check]) -> Self {
        let image = Self {
            dir: tempfile::tempdir().unwrap(),
            kernel: parts.kernel.clone(),
        };
        image.make_initrd(parts);
        image.make_disk(parts, checks);
        image.make_quota_disk();
        image
    }

    pub(crate) fn kernel(&self) -> &Path {
        &self.kernel
    }

    pub(crate) fn initrd(&self) -> PathBuf {
        self.dir.path().join("initrd")
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    pub(crate) fn quota_disk(&self) -> PathBuf {
        self.dir.path().join("quota-disk")
    }

    fn make_quota_disk(&self) {
        run(Command::new("mkfs.ext4")
            .args(["-q", "-O", "quota,project"])
            .args(["-E", "quotatype=prjquota,root_owner=0:0"])
            .arg(self.quota_disk())
            .arg(QUOTA_DISK_BYTES));
    }

    fn make_initrd(&self, parts: &Parts) {
        let tree = self.dir.path().join("first");
        for dir in ["bin", "modules", "dev", "proc", "sys", "root"] {
            fs::create_dir_all(tree.join(dir)).unwrap();
        }
        copy(&parts.busybox, &tree.join("bin/busybox"));
        for applet in ["sh", "mount", "insmod", "switch_root"] {
            symlink("busybox", tree.join("bin").join(applet)).unwrap();
        }
        write_script(&tree.join("init"), include_str!("initrd.sh"));
        for (index, module) in parts.modules_in_order().iter().enumerate() {
            copy(module, &tree.join(format!("modules/{index:02}.ko")));
        }
        let pack = "find . | \"$1\" cpio -o -H newc > \"$2\"";
        run(Command::new("sh")
            .args(["-c", pack, "sh"])
            .arg(&parts.busybox)
            .arg(self.initrd())
            .current_dir(&tree));
    }

    fn make_disk(&self, parts: &Parts, checks: &[Check]) {
        let tree = self.dir.path().join("second");
        for dir in [
            "dev",
            "etc",
            "mnt",
            "proc",
            "quota",
            "root",
            "run",
            "sys",
            "test",
            "tmp",
            "var/tmp",
            "usr/bin",
            "usr/sbin",
            "usr/lib",
            "usr/lib64",
            "usr/local/bin",
        ] {
            fs::create_dir_all(tree.join(dir)).unwrap();
        }
        for dir in ["bin", "sbin", "lib", "lib64"] {
            symlink(format!("usr/{dir}"), tree.join(dir)).unwrap();
        }
        for dir in ["tmp", "var/tmp"] {
            fs::set_permissions(tree.join(dir), fs::Permissions::from_mode(0o1777)).unwrap();
        }
        let users = "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/false\n";
        fs::write(tree.join("etc/passwd"), users).unwrap();
        fs::write(tree.join("etc/group"), "root:x:0:\nnogroup:x:65534:\n").unwrap();
        fs::write(tree.join("etc/shadow"), "root:*:19000::::::\n").unwrap();
        fs::set_permissions(tree.join("etc/shadow"), fs::Permissions::from_mode(0o600)).unwrap();
        // The programs, and what the dynamic linker wants for them.
        let mut linked = BTreeSet::new();
        for name in PROGRAMS.split_whitespace() {
            let from = find_program(name).unwrap_or_else(|| panic!("there is no {name} here"));
            copy(&from, &tree.join("usr/bin").join(name));
            linked.insert(from);
        }
        for file in python_files() {
            let to = tree.join(file.strip_prefix("/").unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            copy(&file, &to);
            if file.extension().is_some_and(|extension| extension == "so") {
                linked.insert(file);
            }
        }
        let glovebox = testkit::binary();
        copy(&glovebox, &tree.join("test/glovebox"));
        linked.insert(glovebox);
        for check in checks {
            copy(&check.program, &tree.join("test").join(check.name));
            linked.insert(check.program.clone());
        }
        for library in testkit::libraries(linked) {
            let to = tree.join(library.strip_prefix("/").unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            copy(&library, &to);
        }
        copy(&parts.busybox, &tree.join("test/busybox"));
        write_script(&tree.join("test/init"), include_str!("init.sh"));
        let lines: String = checks.iter().map(Check::line).collect();
        fs::write(tree.join("test/checks"), lines).unwrap();
        let size = (bytes_below(&tree) + FREE_BYTES) >> 20;
        run(Command::new("mkfs.ext4")
            .args(["-q", "-E", "root_owner=0:0", "-d"])
            .arg(&tree)
            .arg(self.disk())
            .arg(format!("{size}M")));
        // The image holds all of it.
        fs::remove_dir_all(&tree).unwrap();
    }
}

/// Files of the library of Python.
fn python_files() -> Vec<PathBuf> {
    // Outside of any environment of the user's, whose library is another.
    let listed = Command::new(find_program("python3").unwrap())
        .args(["-I", "-c", PYTHON_FILES])
        .output()
        .unwrap();
    assert!(listed.status.success(), "{listed:?}");
    String::from_utf8(listed.stdout)
        .unwrap()
        .lines()
        .map(PathBuf::from)
        .filter(|path| path.is_absolute() && path.is_file())
        .collect()
}

/// A program of this machine.
fn find_program(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        .map(|dir| Path::new(dir).join(name))
        .into_iter()
        .find(|path| path.is_file())
}

#[track_caller]
fn copy(from: &Path, to: &Path) {
    if let Err(error) = fs::copy(from, to) {
        panic!(
            "cannot copy {} to {}: {error}",
            from.display(),
            to.display()
        );
    }
}

fn write_script(to: &Path, text: &str) {
    fs::write(to, text).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
}

fn bytes_below(dir: &Path) -> u64 {
    let mut sum = 0;
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let found = entry.metadata().unwrap();
        sum += if found.is_dir() {
            bytes_below(&entry.path())
        } else {
            found.len()
        };
    }
    sum
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
