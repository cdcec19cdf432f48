//! A program inside that looks for itself what holds, and the comparison of that with the report.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// What a witness inside has found, by name.
#[derive(Debug)]
pub(crate) struct Testimony(BTreeMap<String, String>);

/// Namespaces that a sandbox never shares with the host.
const NAMESPACES: [&str; 6] = ["user", "mnt", "pid", "ipc", "uts", "cgroup"];

/// Invocations that the filter of a sandbox answers, and what it answers. Without that filter the kernel has
/// another answer for a process without capabilities.
const FILTERED: [(&str, libc::c_long, &str, i32); 7] = [
    ("unshare", libc::SYS_unshare, "0", libc::EPERM),
    ("setns", libc::SYS_setns, "-1, 0", libc::EPERM),
    (
        "open_tree",
        libc::SYS_open_tree,
        "-1, '', 4096",
        libc::EPERM,
    ),
    ("keyctl", libc::SYS_keyctl, "0, -3, 0", libc::EPERM),
    ("ioctl", libc::SYS_ioctl, "-1, 0x5412, 0", libc::EPERM),
    ("clone3", libc::SYS_clone3, "0, 0", libc::ENOSYS),
    ("socket", libc::SYS_socket, "16, 3, 2", libc::EAFNOSUPPORT),
];

const LOOK: &str = r#"
    $| = 1;
    my ($outside, $reversed, $abstract) = @ARGV; my $marker = reverse $reversed;
    sub found { my ($k, $v) = @_; $v //= ''; $v =~ s/\s+/ /g; $v =~ s/^ | $//g; print "$k\t$v\n"; }
    sub outcome { my ($k, $done) = @_; my $e = $! + 0; found($k, $done ? 'done' : $e); }
    sub answer { my ($k, $n, @a) = @_; $! = 0; my $r = syscall($n, @a); outcome($k, $r != -1); return $r; }
    sub slurp { my $h; open($h, '<', $_[0]) or return ''; local $/; my $t = <$h>; return $t; }
    my $status = slurp('/proc/self/status');
    for my $f (qw(Uid Gid Groups CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs)) {
        found($f, $status =~ /^$f:(.*)$/m ? $1 : 'unknown'); }
    found("ns/$_", readlink("/proc/self/ns/$_")) for qw(user mnt pid ipc uts cgroup net);
    found('interfaces', join ' ', map { /^\s*([^:\s]+):/ ? $1 : () } split /\n/, slurp('/proc/self/net/dev'));
    found('hostname', slurp('/proc/sys/kernel/hostname'));
    found('outside', -e $outside ? 'seen' : 'absent');
    $! = 0; outcome('write/granted', open(my $g, '>', '/granted/new'));
    $! = 0; outcome('write/usr', mkdir('/usr/new'));
    found('granted', slurp('/granted/file'));
    $! = 0; outcome('write/root', mkdir('/new'));
    $! = 0; outcome('write/workspace', mkdir('/workspace/new'));
    my $root = join ',', (stat '/')[0, 1];
    found('above', join(',', (stat '/..')[0, 1]) eq $root ? 'root' : 'elsewhere');
    opendir(my $d, '/proc'); my $seen = 'absent';
    for (grep { /^\d+$/ } readdir $d) { $seen = 'seen' if index(slurp("/proc/$_/cmdline"), $marker) >= 0; }
    found('marker', $seen);
    my $limits = slurp('/proc/self/limits');
    found('core', $limits =~ /^Max core file size\s+(\S+)/m ? $1 : 'unknown');
    found('memlock', $limits =~ /^Max locked memory\s+(\S+)/m ? $1 : 'unknown');
    $! = 0; outcome('first/cwd', readlink('/proc/1/cwd'));
    my @mounts = split /\n/, slurp('/proc/self/mountinfo');
    found('mounts', scalar @mounts);
    found('set-user-id', join ' ', map { (split / /)[4] } grep { (split / /)[5] !~ /nosuid/ } @mounts);
    opendir(my $f, '/proc/self/fd'); my @fds = sort grep { /^\d+$/ && -e "/proc/self/fd/$_" } readdir $f;
    found('descriptors', join ' ', grep { $_ != fileno($f) && $_ != fileno($d) } grep { $_ > 2 } @fds);
    if (defined $abstract) { my $a = pack('S', 1) . "\0$abstract"; my $s = syscall(SOCKET, 1, 1, 0);
        answer('abstract', CONNECT, $s, $a, length $a); }
"#;

/// The words of the command that looks. `marker` is in the command line of a process outside, and `abstract`
/// the name of an abstract socket of the host.
pub(crate) fn command(outside: &Path, marker: &str, abstract_name: Option<&str>) -> Vec<String> {
    let mut script = LOOK
        .replace("SOCKET", &libc::SYS_socket.to_string())
        .replace("CONNECT", &libc::SYS_connect.to_string());
    for (name, number, arguments, _) in FILTERED {
        let _ = writeln!(script, "answer('filter/{name}', {number}, {arguments});");
    }
    let (mount, unshare) = (libc::SYS_mount, libc::SYS_unshare);
    let _ = writeln!(
        script,
        "answer('refused/mount', {mount}, 'none', '/tmp', 'tmpfs', 0, 0); \
         answer('refused/user-namespace', {unshare}, 0x10000000); found('end', 'reached');"
    );
    let reversed: String = marker.chars().rev().collect();
    let mut words = vec!["perl".to_owned(), "-e".to_owned(), script];
    words.extend([outside.display().to_string(), reversed]);
    words.extend(abstract_name.map(str::to_owned));
    words
}

impl Testimony {
    pub(crate) fn new(out: &str) -> Self {
        let pairs = out.lines().filter_map(|line| line.split_once('\t'));
        Self(
            pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("not looked at", String::as_str)
    }

    /// Everything that does not hold although the report says so; `is_ordinary` when no id but one's own exists
    /// inside, so that files of the root belong to the sandbox user.
    pub(crate) fn contradictions(&self, report: &Value, is_ordinary: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut expect = |name: &str, wanted: &str| {
            let found = self.get(name);
            if found != wanted {
                wrong.push(format!("{name} is {found:?}, not {wanted:?}"));
            }
        };
        for name in ["Uid", "Gid"] {
            expect(name, "1000 1000 1000 1000");
        }
        if !is_ordinary {
            expect("Groups", "");
        }
        for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            expect(name, "0000000000000000");
        }
        expect("NoNewPrivs", "1");
        for (name, _, _, errno) in FILTERED {
            expect(&format!("filter/{name}"), &errno.to_string());
        }
        expect("hostname", "glovebox");
        expect("outside", "absent");
        expect("marker", "absent");
        expect("granted", "granted");
        expect("write/granted", &libc::EROFS.to_string());
        expect("write/usr", &libc::EROFS.to_string());
        expect("write/workspace", "done");
        expect("above", "root");
        expect("set-user-id", "");
        expect("descriptors", "");
        expect("end", "reached");
        if state(report, "landlock") == "enforced" && is_ordinary {
            expect("write/root", &libc::EACCES.to_string());
        }
        if state(report, "network") == "enforced" {
            expect("interfaces", "lo");
        }
        let namespaces = NAMESPACES
            .into_iter()
            .chain((state(report, "network") == "enforced").then_some("net"));
        for name in namespaces {
            let inside = self.get(&format!("ns/{name}"));
            let host = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
            if !inside.starts_with(name) || Path::new(inside) == host {
                wrong.push(format!(
                    "the {name} namespace is {inside}, the host's {}",
                    host.display()
                ));
            }
        }
        for name in ["refused/mount", "refused/user-namespace", "first/cwd"] {
            if self.get(name).parse::<i32>().is_err() {
                wrong.push(format!("{name} is {:?}", self.get(name)));
            }
        }
        for (name, most) in [("core", 1), ("memlock", 64 << 10)] {
            if !self
                .get(name)
                .parse::<u64>()
                .is_ok_and(|bytes| bytes <= most)
            {
                wrong.push(format!("{name} is {:?}, not {most}", self.get(name)));
            }
        }
        if self
            .get("mounts")
            .parse::<u32>()
            .is_ok_and(|count| count < 10)
        {
            wrong.push(format!("only {} mounts", self.get("mounts")));
        }
        wrong
    }
}

/// How well a wall holds by the report.
pub(crate) fn state<'a>(report: &'a Value, wall: &str) -> &'a str {
    report["walls"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|line| line["name"] == wall)
        .and_then(|line| line["state"].as_str())
        .unwrap_or("missing")
}
