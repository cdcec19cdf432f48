//! The view of the sandbox's own control group: writing to it, leaving it, and finding others by it.

use crate::arena::{Arena, Shape};
use crate::script::{perl, sh};
use glovebox_sandbox::Sandbox;
use glovebox_sandbox::jail::spec::{LimitKind, LimitState};
use testkit::{SkipReason, is_root, skip_because};

/// Groups are root's to give.
fn without_groups() -> SkipReason {
    if is_root() {
        return SkipReason::from("no limit is held by control groups here");
    }
    SkipReason::needs_root("for control groups")
}

/// A sandbox of this shape with limits that a group holds, beside another one. `None` where there are no groups.
fn limited(arena: &Arena, shape: Shape) -> Option<(Sandbox, Sandbox)> {
    let mut spec = arena.shaped(shape);
    spec.jail.limits.memory_bytes = Some(300 << 20);
    spec.jail.limits.pids = Some(200);
    spec.jail.limits.cpu_millis = Some(500);
    let sandbox = arena.create(&spec);
    let report = sandbox.report().expect("a report");
    let is_held = report
        .limits
        .iter()
        .any(|limit| limit.kind == LimitKind::Memory && limit.state == LimitState::Enforced);
    if is_held {
        return Some((sandbox, arena.create(&spec)));
    }
    let found = sh(&sandbox, "ls -A /sys/fs/cgroup 2>/dev/null");
    assert_eq!(found.out, "", "a view without a group");
    sandbox.destroy().expect("a sandbox ends in order");
    None
}

/// Every file and directory of the view is looked at; opening for writing, making and removing
/// directories, changing owners, modes and times, and remounting are tried on each.
/// Twin: the limits are read, and files elsewhere are written by the same calls.
#[test]
fn attack_own_control_group() {
    let arena = Arena::new();
    let mut is_tried = false;
    for shape in [Shape::Host, Shape::HostAll, Shape::Dir] {
        let Some((sandbox, neighbour)) = limited(&arena, shape) else {
            continue;
        };
        is_tried = true;
        let found = perl(
            &sandbox,
            r#"my @all; my @todo = ('/sys/fs/cgroup');
               while (@todo) { my $p = shift @todo; push @all, $p; next if -l $p || !-d $p;
                 opendir(my $d, $p) or next; push @todo, map { "$p/$_" } grep { !/^\.\.?$/ } readdir $d; }
               found('count', scalar @all);
               sub write_to { my ($name, $p) = @_; $! = 0; verdict($name, sysopen(my $h, $p, 1)); }
               for my $p (@all) {
                 if (-d $p) { $! = 0; verdict("write/mkdir$p", mkdir "$p/own");
                   $! = 0; verdict("write/rmdir$p", rmdir $p) if $p ne '/sys/fs/cgroup'; }
                 else { write_to("write/open$p", $p); }
                 $! = 0; verdict("write/chmod$p", chmod 0777, $p);
                 $! = 0; verdict("write/utime$p", utime 1, 1, $p);
                 $! = 0; verdict("write/rename$p", rename $p, "$p-x");
                 try("mount/remount$p", 'mount', 'none', $p, 0, 32 | 4096, 0);
                 try("mount/umount$p", 'umount2', $p, 2); }
               for my $line (split /\n/, slurp('/proc/self/mountinfo')) { my ($where, $options) = (split / /, $line)[4, 5];
                 found("access$where", (split /,/, $options)[0]) if $where =~ m{^/sys/fs/cgroup}; }
               my ($limit) = grep { -e } '/sys/fs/cgroup/memory.max', '/sys/fs/cgroup/memory/memory.limit_in_bytes';
               found('limit', slurp($limit) + 0);
               write_to('twin/open', do { open(my $h, '>', '/tmp/file'); close $h; '/tmp/file' });
               verdict('twin/mkdir', mkdir '/tmp/own'); verdict('twin/chmod', chmod 0777, '/tmp/file');
               verdict('twin/utime', utime 1, 1, '/tmp/file'); verdict('twin/rename', rename '/tmp/file', '/tmp/other');"#,
        );
        let count: u32 = found.get("count").parse().expect("a number");
        assert!(count > 10, "{shape:?}: {count} names");
        found.all_refused("write/", &["EROFS", "EBUSY", "EACCES", "EPERM", "EXDEV"]);
        found.all_refused("mount/", &["EPERM", "ENOSYS"]);
        // Whatever the permissions are, the mounts refuse.
        for prefix in ["write/mkdir", "write/chmod", "write/utime"] {
            found.all_refused(prefix, &["EROFS"]);
        }
        for (name, is) in found.below("access") {
            assert_eq!(is, "ro", "{shape:?}: {name}");
        }
        assert!(found.below("access").count() > 0, "{shape:?}: {found:?}");
        assert_eq!(found.get("limit"), (300_u64 << 20).to_string(), "{shape:?}");
        for twin in ["open", "mkdir", "chmod", "utime", "rename"] {
            found.worked(&format!("twin/{twin}"));
        }
        neighbour.destroy().expect("a sandbox ends in order");
        sandbox.destroy().expect("a sandbox ends in order");
    }
    if !is_tried {
        skip_because!(without_groups());
    }
}

/// Leaving the view by `..`, by descriptors, and by what names the groups: the sandbox beside it, the group above
/// and the host's tree stay out of sight. Twin: a sandbox does see its own processes by the same files.
#[test]
fn attack_control_groups_of_others() {
    let arena = Arena::new();
    let mut is_tried = false;
    for shape in [Shape::Host, Shape::HostAll, Shape::Dir] {
        let Some((sandbox, neighbour)) = limited(&arena, shape) else {
            continue;
        };
        is_tried = true;
        let found = perl(
            &sandbox,
            r#"my $root = join ',', (stat '/')[0, 1];
               opendir(my $all, '/sys/fs/cgroup'); my @below = map { "/sys/fs/cgroup/$_" } grep { !/^\./ } readdir $all;
               my @tops = grep { -e "$_/cgroup.procs" } '/sys/fs/cgroup', @below;
               found('tops', scalar @tops); my $n = 0;
               for my $top (@tops) {
                 opendir(my $d, $top); my @dirs = grep { !/^\.\.?$/ && -d "$top/$_" } readdir $d;
                 found("below$top", scalar @dirs) unless $top eq '/sys/fs/cgroup' && @tops > 1;
                 # Above the own group lies what the sandbox itself has there.
                 my $fd = sys('openat', -100, "$top\0", 0x10000, 0); my $up = '..';
                 for my $turn (1 .. 6) {
                   my $path = "$top/" . join('/', ('..') x $turn);
                   found("above$turn$top", (-e "$path/cgroup.procs" || -e "$path/glovebox") ? 'group' : 'none'); }
                 chdir $top; chdir '..'; found("left$top", -e 'cgroup.procs' && $top ne '/sys/fs/cgroup' ? 'group' : 'none');
                 chdir '/'; for (split /\n/, slurp("$top/cgroup.procs")) { $n++ if -d "/proc/$_"; $n += 1000 if $_ eq '0'; } }
               found('seen', $n);
               my $names = join ' ', grep { /cgroup/ } split /\n/, slurp('/proc/self/mountinfo');
               found('named', $names =~ /sandbox-|glovebox\// ? 'yes' : 'no');
               found('own', slurp('/proc/self/cgroup') =~ /sandbox-/ ? 'yes' : 'no');"#,
        );
        let tops: u32 = found.get("tops").parse().expect("a number");
        assert!(tops >= 1, "{shape:?}: {found:?}");
        for (name, count) in found.below("below") {
            assert_eq!(count, "0", "{shape:?}: groups below {name}");
        }
        for prefix in ["above", "left"] {
            for (name, is) in found.below(prefix) {
                assert_eq!(is, "none", "{shape:?}: {prefix}{name}");
            }
        }
        let seen: u32 = found.get("seen").parse().expect("a number");
        assert!((1..1000).contains(&seen), "{shape:?}: {seen} processes");
        assert_eq!(found.get("named"), "no", "{shape:?}: {found:?}");
        assert_eq!(found.get("own"), "no", "{shape:?}: {found:?}");
        neighbour.destroy().expect("a sandbox ends in order");
        sandbox.destroy().expect("a sandbox ends in order");
    }
    if !is_tried {
        skip_because!(without_groups());
    }
}
