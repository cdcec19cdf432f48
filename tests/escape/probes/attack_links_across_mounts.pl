# Hard links and unnamed files across the mounts -> stay apart. Twin: within the workspace they work.
for my $p ('/usr/bin/perl', '/bin/perl', '/etc/passwd', '/dev/null', '/proc/self/exe', '/proc/self/mem') { next unless -e $p;
  $! = 0; verdict("link$p", link($p, '/workspace/hard'));
  my $fd = sys('openat', -100, $p, 0x200000, 0);
  try("by-fd$p", 'linkat', $fd, '', -100, '/workspace/hard', 0x1000);
  try("by-proc$p", 'linkat', -100, "/proc/self/fd/$fd", -100, '/workspace/hard', 0x400); unlink '/workspace/hard'; }
# O_TMPFILE, then a name.
for my $from ('/tmp', '/dev/shm') { my $t = sys('openat', -100, $from, 0x410000 | 2, 0600); next if $t < 0;
  try("tmpfile$from", 'linkat', -100, "/proc/self/fd/$t", -100, '/workspace/named', 0x400); unlink '/workspace/named'; }
my $t = sys('openat', -100, '/workspace', 0x410000 | 2, 0600);
if ($t >= 0) { try('own-tmpfile', 'linkat', -100, "/proc/self/fd/$t", -100, '/workspace/named', 0x400) } else { found('own-tmpfile', 'none') }
$! = 0; verdict('own', link('/workspace/file', '/workspace/second'));
