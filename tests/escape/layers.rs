//! The layers below: whatever is done inside, the project and the host's programs stay as they are.

use crate::arena::{Arena, Shape};
use crate::script::{perl, sh, sh_ok};
use glovebox_workspace::collect::{Layered, from_layers};
use glovebox_workspace::{ChangeKind, Filter, Quota};
use std::fs;
use std::ops::ControlFlow;
use testkit::Canary;

/// Write, truncate, map, link, chmod, rename and remove everything in the project and in /usr -> no
/// byte of the host changes. Twin: inside, every change shows.
#[test]
fn probe_49_lower_immutability() {
    let arena = Arena::new();
    let canary = Canary::plant(arena.home.project().join("canary"));
    arena.home.write("project/mapped", vec![b'a'; 8192]);
    let project = Canary::watch(arena.home.project());
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(
            sandbox,
            r#"chdir '/workspace/canary';
               # A descriptor from before the copy-up, one from after.
               open(my $early, '<', 'file.txt'); my $h; verdict('write', open($h, '+<', 'file.txt') && syswrite($h, 'changed'));
               my $e; sysread($early, $e, 7); found('early', $e =~ s/\n//r);
               verdict('chmod', chmod(0700, 'deep')); verdict('utime', utime(1, 1, 'run.sh'));
               verdict('truncate', truncate('.hidden', 1)); verdict('link', link('file.txt', 'hard'));
               verdict('unlink', unlink('link')); verdict('rename', rename('deep/er', 'moved')) or 1;
               verdict('rmdir', rmdir('empty')); verdict('mkdir', mkdir('empty'));
               my $x = 'value'; try('xattr', 'lsetxattr', 'run.sh', 'user.note', $x, 5, 0);
               # A shared mapping of a file that was opened for writing.
               my $fd = sys('openat', -100, '/workspace/mapped', 2, 0);
               my $at = sys('mmap', 0, 4096, 3, 1, $fd, 0); verdict('mmap', $at != -1);
               if ($at != -1) { open(my $m, '+<', '/proc/self/mem'); sysseek($m, $at, 0); syswrite($m, 'zzzz'); }
               found('mapped', substr(slurp('/workspace/mapped'), 0, 4));
               # The same with a descriptor that may only read.
               my $ro = sys('openat', -100, '/usr/bin/env', 0, 0); $ro = sys('openat', -100, '/bin/sh', 0, 0) if $ro < 0;
               my $shared = sys('mmap', 0, 4096, 1, 1, $ro, 0);
               if ($shared != -1) { open(my $m, '+<', '/proc/self/mem'); sysseek($m, $shared, 0); $! = 0;
                 verdict('usr-mapped', syswrite($m, 'zzzz')); } else { found('usr-mapped', 'EPERM') }
               for my $p ('/usr/bin/perl', '/bin/perl') { next unless -e $p; try_open("usr/open$p", $p, 1);
                 $! = 0; verdict("usr/chmod$p", chmod(0777, $p)); $! = 0; verdict("usr/unlink$p", unlink($p));
                 $! = 0; verdict("usr/rename$p", rename($p, '/workspace/p')); $! = 0; verdict("usr/link$p", link($p, '/workspace/p')); }
               opendir(C, '/workspace/canary'); for (readdir C) { unlink "/workspace/canary/$_" }"#,
        );
        for name in ["write", "chmod", "utime", "truncate", "link", "unlink", "rmdir", "mkdir", "xattr", "mmap"] {
            found.worked(name);
        }
        // A descriptor from before the copy-up goes on showing what it showed, or follows.
        assert!(["canary", "changed"].contains(&found.get("early")), "{shape:?}");
        assert_eq!(found.get("mapped"), "zzzz", "{shape:?}");
        if shape != Shape::Dir {
            found.all_refused("usr/", &["EROFS", "EACCES", "EPERM", "EXDEV", "EBUSY"]);
            // /proc/PID/mem may write to pages of one's own copy; never to the file.
            assert_eq!(sh_ok(sandbox, "/usr/bin/env echo fine"), "fine\n");
        }
        assert!(sh(sandbox, "rm -rf /workspace/* /workspace/.[!.]*; ls -A /workspace").out.is_empty());
        canary.assert_untouched();
        project.assert_untouched();
    });
    project.assert_untouched();
}

/// Marks of the overlay itself, forged from inside -> refused or inert, and nothing of the host shows
/// or changes by them.
#[test]
fn attack_forged_overlay_marks() {
    let arena = Arena::new();
    arena.home.write("project/dir/below", "below\n");
    arena.home.write("project/victim", "victim\n");
    let project = Canary::watch(arena.home.project());
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(
            sandbox,
            r#"mkdir '/workspace/new';
               for my $n (qw(opaque redirect metacopy origin whiteout whiteouts upper nlink impure uuid protattr overlay.opaque)) {
                 for my $kind ('user', 'trusted') { for my $p ('/workspace/dir', '/workspace/new', '/workspace/victim', '/') {
                   my $v = $n =~ /redirect/ ? '/../../../../etc' : 'y';
                   try("mark/$kind/$n$p", 'lsetxattr', $p, "$kind.overlay.$n", $v, length $v, 0); } } }
               for my $kind ('security.capability', 'security.selinux', 'system.posix_acl_access', 'trusted.x') {
                 my $v = "\x01\0\0\x02" . "\xff" x 16; try("other/$kind", 'lsetxattr', '/workspace/victim', $kind, $v, 20, 0); }
               # Whiteouts by hand, and the names the kernel works with.
               try('whiteout', 'mknodat', -100, '/workspace/victim2', 0020000, 0);
               # RENAME_WHITEOUT leaves one behind.
               open(my $h, '>', '/workspace/scratch'); my $r = try('leave', 'renameat2', -100, '/workspace/scratch', -100, '/workspace/scratch2', 4);
               found('left', -e '/workspace/scratch' ? 'seen' : 'unseen');
               verdict('list', opendir(my $d, '/workspace/dir')); verdict('below', slurp('/workspace/dir/below') eq "below\n");
               my $x = 'v'; try('own', 'lsetxattr', '/workspace/new', 'user.mine', $x, 1, 0);"#,
        );
        for (name, value) in found.below("mark/trusted") {
            assert_ne!(value, "ok", "{shape:?}: {name}");
        }
        found.all_refused("other/security.capability", &["EPERM", "EINVAL", "EOPNOTSUPP"]);
        found.all_refused("other/trusted", &["EPERM", "EOPNOTSUPP"]);
        found.refused("whiteout", &["EPERM"]);
        found.worked("list");
        found.worked("below");
        found.worked("own");
        // Whatever was accepted is data of the sandbox: the view stays the same.
        assert_eq!(sh_ok(sandbox, "cat /workspace/victim"), "victim\n");
        assert!(sh(sandbox, "ls /workspace/new/ /workspace/dir/").out.contains("below"));
        assert!(!sh(sandbox, "cat /workspace/new/shadow /workspace/dir/shadow").succeeded());
    });
    project.assert_untouched();
    // What is listed as changed is what was changed.
    let sandbox = arena.sandbox();
    sh_ok(
        &sandbox,
        "rm /workspace/victim; echo more >> /workspace/dir/below; echo new > /workspace/added",
    );
    let layers = sandbox.workspace_layers().expect("layers");
    let source = Layered {
        project: layers.project.as_deref(),
        layers: &layers.layers,
        hidden: &layers.hidden,
    };
    let collected = from_layers(&source, &Filter::default(), &Quota::default(), &mut |_| {
        ControlFlow::Continue(())
    })
    .expect("changes");
    let changes: Vec<String> = collected
        .set
        .changes
        .iter()
        .map(|change| {
            let kind = match change.kind {
                ChangeKind::Added { .. } => "Added",
                ChangeKind::Modified { .. } => "Modified",
                ChangeKind::Deleted { .. } => "Deleted",
                ChangeKind::Renamed { .. } => "Renamed",
            };
            format!("{kind} {}", change.path)
        })
        .collect();
    assert_eq!(
        changes,
        ["Added added", "Modified dir/below", "Deleted victim"]
    );
    project.assert_untouched();
}

/// Hard links and unnamed files across the mounts -> stay apart. Twin: within the workspace they work.
#[test]
fn attack_links_across_mounts() {
    let arena = Arena::new();
    arena.home.write("project/file", "project\n");
    let project = Canary::watch(arena.home.project());
    arena.in_every_shape(|_, sandbox| {
        let found = perl(
            sandbox,
            r#"for my $p ('/usr/bin/perl', '/bin/perl', '/etc/passwd', '/dev/null', '/proc/self/exe', '/proc/self/mem') { next unless -e $p;
                 $! = 0; verdict("link$p", link($p, '/workspace/hard'));
                 my $fd = sys('openat', -100, $p, 0x200000, 0);
                 try("by-fd$p", 'linkat', $fd, '', -100, '/workspace/hard', 0x1000);
                 try("by-proc$p", 'linkat', -100, "/proc/self/fd/$fd", -100, '/workspace/hard', 0x400); unlink '/workspace/hard'; }
               # O_TMPFILE, then a name.
               for my $from ('/tmp', '/dev/shm') { my $t = sys('openat', -100, $from, 0x410000 | 2, 0600); next if $t < 0;
                 try("tmpfile$from", 'linkat', -100, "/proc/self/fd/$t", -100, '/workspace/named', 0x400); unlink '/workspace/named'; }
               my $t = sys('openat', -100, '/workspace', 0x410000 | 2, 0600);
               if ($t >= 0) { try('own-tmpfile', 'linkat', -100, "/proc/self/fd/$t", -100, '/workspace/named', 0x400) } else { found('own-tmpfile', 'none') }
               $! = 0; verdict('own', link('/workspace/file', '/workspace/second'));"#,
        );
        for (name, value) in found.below("link").chain(found.below("by-")).chain(found.below("tmpfile")) {
            // The root and the workspace of a small image are different mounts as well.
            assert!(["EXDEV", "EPERM", "EACCES", "ENOENT", "EROFS"].contains(&value), "{name} came out as {value}");
        }
        found.worked("own");
    });
    project.assert_untouched();
    assert_eq!(
        fs::metadata(arena.home.project().join("file"))
            .map(|meta| std::os::unix::fs::MetadataExt::nlink(&meta))
            .ok(),
        Some(1)
    );
}
