# Marks of the overlay itself, forged from inside -> refused or inert, and nothing of the host shows or changes by
# them.
mkdir '/workspace/new';
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
my $x = 'v'; try('own', 'lsetxattr', '/workspace/new', 'user.mine', $x, 1, 0);
