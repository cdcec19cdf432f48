# mknod of devices and whiteouts -> EPERM. Twin: a FIFO, and reading /dev/zero.
for my $dir ('/workspace', '/tmp', '/dev/shm') {
  my ($c, $b) = (0020666, 0060666);
  try("node$dir/mem", 'mknodat', -100, "$dir/mem", $c, (1 << 8) | 1);
  try("node$dir/sda", 'mknodat', -100, "$dir/sda", $b, 8 << 8);
  try("node$dir/null", 'mknodat', -100, "$dir/null", $c, (1 << 8) | 3);
  try("node$dir/whiteout", 'mknodat', -100, "$dir/whiteout", $c, 0);
  try("fifo$dir", 'mknodat', -100, "$dir/fifo", 0010666, 0); }
opendir(D, '/dev'); found('dev', join ' ', sort grep { !/^\./ } readdir(D));
for my $n (qw(mem kmem port kmsg kvm fuse vda sda nvme0n1 loop0 loop-control console tty0 tty1 vcs
              input/event0 net/tun vhost-vsock vsock ptp0 rtc0 mapper/control userfaultfd)) {
  try_open("open/$n", "/dev/$n", 0); }
my $z = try_open('zero', '/dev/zero', 0); try_open('random', '/dev/urandom', 0);
try_open('null', '/dev/null', 1);
