# Every way to mount, old and new -> EPERM or ENOSYS. Twin: files and directories are made.
mkdir '/tmp/m';
for my $t (qw(tmpfs proc sysfs overlay devpts mqueue cgroup cgroup2 fuse ext4 bpf)) {
  try("mount/$t", 'mount', 'none', '/tmp/m', $t, 0, 0); }
try('mount/bind', 'mount', '/usr', '/tmp/m', 0, 4096, 0);
try('mount/move', 'mount', '/proc', '/tmp/m', 0, 8192, 0);
try('mount/remount', 'mount', 'none', '/usr', 0, 32 | 4096, 0);
try('mount/shared', 'mount', 'none', '/', 0, 1 << 20, 0);
try('new/fsopen', 'fsopen', 'tmpfs', 0); try('new/fspick', 'fspick', -100, '/', 0);
try('new/fsconfig', 'fsconfig', 0, 6, 0, 0, 0); try('new/fsmount', 'fsmount', 0, 0, 0);
try('new/open_tree', 'open_tree', -100, '/', 1);
try('new/open_tree-plain', 'open_tree', -100, '/', 0);
try('new/move_mount', 'move_mount', -100, '/usr', -100, '/tmp/m', 0);
try('new/mount_setattr', 'mount_setattr', -100, '/usr', 0, pack('QQQQ', 0, 1, 0, 0), 32);
try('root/chroot', 'chroot', '/tmp/m'); try('root/pivot_root', 'pivot_root', '.', '.');
verdict('mkdir', mkdir('/tmp/m/own'));
