//! New namespaces and other people's.

use crate::arena::Arena;
use crate::script::{perl, sh};

const NEW: &str = "user=>0x10000000, ns=>0x20000, pid=>0x20000000, net=>0x40000000, ipc=>0x8000000, uts=>0x4000000, cgroup=>0x2000000, time=>0x80";

/// unshare, clone and clone3 with a new user namespace -> refused. Twin: fork works.
#[test]
fn probe_08_nested_userns() {
    let arena = Arena::new();
    arena.in_every_shape(|_, sandbox| {
        let found = perl(
            sandbox,
            &format!(
                r#"my %new = ({NEW});
                for my $k (sort keys %new) {{
                  try("unshare/$k", 'unshare', $new{{$k}});
                  try("with-user/$k", 'unshare', $new{{$k}} | 0x10000000);
                  # The kernel takes flags as a machine word; set bits above the 32nd as well.
                  try("unshare-high/$k", 'unshare', $new{{$k}} | (1 << 40));
                  my $r = try("clone/$k", 'clone', $new{{$k}} | 17, 0, 0, 0, 0); exit 9 if $r == 0;
                  $r = try("clone-high/$k", 'clone', ($new{{$k}} | 17) | (1 << 40), 0, 0, 0, 0); exit 9 if $r == 0; }}
                verdict('fork', child('', sub {{ exit 0 }}) == 0);"#
            ),
        );
        for prefix in ["unshare/", "with-user/", "unshare-high/", "clone/", "clone-high/"] {
            found.all_refused(prefix, &["EPERM", "ENOSPC", "ENOSYS", "EINVAL"]);
        }
        found.worked("fork");
        assert!(!sh(sandbox, "unshare -Ur true").succeeded());
        assert!(!sh(sandbox, "unshare -n true").succeeded());
    });
}

/// clone3 with namespaces in its structure -> ENOSYS or EPERM, whatever the size.
#[test]
fn probe_09_clone3() {
    let arena = Arena::new();
    let found = perl(
        &arena.sandbox(),
        r#"for my $flags (0, 0x20000 | 0x40000000, 0x10000000) { for my $size (0, 64, 80, 88, 4096) {
             my $args = pack('Q*', $flags, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0) . "\0" x 4096;
             my $r = try("clone3/$flags/$size", 'clone3', $args, $size); exit 9 if $r == 0; } }
           verdict('fork', child('', sub {}) == 0);"#,
    );
    found.all_refused("clone3/", &["ENOSYS", "EPERM"]);
    found.worked("fork");
}

/// setns into anything that can be opened -> refused; the limit on user namespaces stays zero.
#[test]
fn attack_setns() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(sandbox, include_str!("probes/attack_setns.pl"));
        found.all_refused("setns/", &["EPERM"]);
        for (name, value) in found.below("up/") {
            assert_eq!(value, "EPERM", "{shape:?}: {name}");
        }
        found.refused("limit", &["EACCES", "EPERM", "EROFS", "ENOENT"]);
        found.worked("read");
    });
}
