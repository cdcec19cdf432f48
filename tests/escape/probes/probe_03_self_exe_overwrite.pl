# Open the programs of pid 1, the wardens and /usr for writing -> refused. Twin: an own program can be replaced and
# run.
for my $round (1..50) { for my $pid (1..30) { next if $pid == $$;
  my $h; next unless sysopen($h, "/proc/$pid/exe", 1) || sysopen($h, "/proc/$pid/exe", 2);
  found('foreign', $pid); } }
found('foreign', 'none');
for my $flags (1, 2, 513) { try_open("self/$flags", '/proc/self/exe', $flags); }
# O_PATH first, then a second look through /proc/self/fd.
my $fd = sys('openat', -100, '/proc/self/exe', 0x200000, 0);
try_open('reopen', "/proc/self/fd/$fd", 1);
sys('close', $fd);
