# `steer(NAME, PID)` tries everything that changes when and where a process runs; `others()` are the processes that
# this one has not started.
my $cpus = "\0" x 128; syscall($nr{sched_getaffinity}, 0, 128, $cpus);
sub steer { my ($k, $pid) = @_; my $zero = pack('i', 0);
  try("$k/affinity", 'sched_setaffinity', $pid, 128, $cpus);
  try("$k/param", 'sched_setparam', $pid, $zero);
  try("$k/nice", 'setpriority', 0, $pid, 5);
  try("$k/ioprio", 'ioprio_set', 1, $pid, (3 << 13) | 7);
  try("$k/batch", 'sched_setscheduler', $pid, 3, $zero);
  try("$k/attr", 'sched_setattr', $pid, pack('LLQlLQQQ', 48, 5, 0, 0, 0, 0, 0, 0), 0);
  try("$k/idle", 'sched_setscheduler', $pid, 5, $zero); }
sub others { opendir(my $d, '/proc'); return grep { /^\d+$/ && $_ != $$ } readdir($d); }
