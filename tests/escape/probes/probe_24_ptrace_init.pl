# Trace, read and write pid 1 and its neighbours, and take their descriptors -> refused. Twin: a child can be waited for
# and its own memory read; tracing.pl has those of tracing.
my $buf = "\0" x 64; my $iov = pack('JJ', unpack('J', pack('p', $buf)), 64);
for my $pid (1, grep { $_ != $$ } 2 .. 4) {
  try("attach/$pid", 'ptrace', 16, $pid, 0, 0);
  try("seize/$pid", 'ptrace', 0x4206, $pid, 0, 0);
  try("read/$pid", 'process_vm_readv', $pid, $iov, 1, $iov, 1, 0);
  try("write/$pid", 'process_vm_writev', $pid, $iov, 1, $iov, 1, 0);
  try("kcmp/$pid", 'kcmp', $pid, $$, 0, 0, 0); }
try("kcmp/own", 'kcmp', $$, $$, 0, 0, 0);
my $own = sys('pidfd_open', $$, 0); verdict('pidfd', $own >= 0);
my $one = sys('pidfd_open', 1, 0);
try('getfd/own', 'pidfd_getfd', $own, 0, 0); try('getfd/one', 'pidfd_getfd', $one, 0, 0);
verdict('child', child('child', sub {}) == 0);
