# setns into anything that can be opened -> refused; the limit on user namespaces stays zero.
for my $k (qw(user mnt pid net ipc uts cgroup pid_for_children time)) {
  my $fd = sys('openat', -100, "/proc/self/ns/$k", 0, 0);
  try("setns/$k", 'setns', $fd, 0);
  # NS_GET_USERNS and NS_GET_PARENT lead upwards.
  for my $request (0xb701, 0xb702) {
    my $up = sys('ioctl', $fd, $request, 0); next if $up < 0;
    try("up/$k/$request", 'setns', $up, 0); } }
my $p = sys('pidfd_open', $$, 0); try('setns/pidfd', 'setns', $p, 0x20000);
my $h; $! = 0;
verdict('limit', sysopen($h, '/proc/sys/user/max_user_namespaces', 1) && syswrite($h, '100'));
verdict('read', defined readlink('/proc/self/ns/user'));
