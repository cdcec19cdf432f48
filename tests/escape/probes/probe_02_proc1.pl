# Open what /proc/1 offers, and pid 1's neighbours -> closed. Twin: the same of oneself is open.
for my $p (qw(environ mem maps smaps smaps_rollup auxv stack syscall personality io
  pagemap clear_refs map_files numa_maps)) {
  my $h; $! = 0; my $done = sysopen($h, "/proc/1/$p", 0) && defined sysread($h, my $b, 64);
  verdict("one/$p", $done && length $b); }
for my $p (qw(root cwd exe fd/0 fd/3 ns/user ns/mnt ns/net ns/pid)) {
  $! = 0; verdict("link/$p", defined readlink("/proc/1/$p")); }
for my $p (qw(root/etc/shadow root/.. cwd/../../.. task/1/root map_files fd)) {
  $! = 0; opendir(my $d, "/proc/1/$p") ? verdict("walk/$p", 1) : verdict("walk/$p", 0); }
try_open('write/mem', '/proc/1/mem', 2);
try_open('write/oom', '/proc/1/oom_score_adj', 1);
verdict('self/environ', defined slurp('/proc/self/environ'));
verdict('self/root', defined readlink('/proc/self/root'));
opendir(R, '/proc/self/root/..'); found('above', join ' ', sort grep { !/^\./ } readdir(R));
