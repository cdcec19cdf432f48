# `trace(NAME, PID)` tries everything that traces a process or opens its memory; `own_child()` is one that waits.
my $text = "as it was"; my $iov = pack('JJ', unpack('J', pack('p', $text)), length $text);
sub trace { my ($k, $pid) = @_;
  try("$k/readv", 'process_vm_readv', $pid, $iov, 1, $iov, 1, 0);
  try("$k/writev", 'process_vm_writev', $pid, $iov, 1, $iov, 1, 0);
  try_open("$k/mem", "/proc/$pid/mem", 2);
  if (try("$k/seize", 'ptrace', 0x4206, $pid, 0, 0) == 0) {
    try("$k/interrupt", 'ptrace', 0x4207, $pid, 0, 0); waitpid($pid, 0); sys('ptrace', 17, $pid, 0, 0); }
  if (try("$k/attach", 'ptrace', 16, $pid, 0, 0) == 0) { waitpid($pid, 0); sys('ptrace', 17, $pid, 0, 0); } }
sub own_child { my $pid = fork(); if (!$pid) { sleep 60; exit } return $pid; }
sub others { opendir(my $d, '/proc'); return grep { /^\d+$/ && $_ != $$ } readdir($d); }
