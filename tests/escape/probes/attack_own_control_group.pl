# Every file and directory of the view is looked at; opening for writing, making and removing directories, changing
# owners, modes and times, and remounting are tried on each. Twin: the limits are read, and files elsewhere are
# written by the same calls.
my @all; my @todo = ('/sys/fs/cgroup');
while (@todo) { my $p = shift @todo; push @all, $p; next if -l $p || !-d $p;
  opendir(my $d, $p) or next; push @todo, map { "$p/$_" } grep { !/^\.\.?$/ } readdir $d; }
found('count', scalar @all);
sub write_to { my ($name, $p) = @_; $! = 0; verdict($name, sysopen(my $h, $p, 1)); }
for my $p (@all) {
  if (-d $p) { $! = 0; verdict("write/mkdir$p", mkdir "$p/own");
    $! = 0; verdict("write/rmdir$p", rmdir $p) if $p ne '/sys/fs/cgroup'; }
  else { write_to("write/open$p", $p); }
  $! = 0; verdict("write/chmod$p", chmod 0777, $p);
  $! = 0; verdict("write/utime$p", utime 1, 1, $p);
  $! = 0; verdict("write/rename$p", rename $p, "$p-x");
  try("mount/remount$p", 'mount', 'none', $p, 0, 32 | 4096, 0);
  try("mount/umount$p", 'umount2', $p, 2); }
for my $line (split /\n/, slurp('/proc/self/mountinfo')) { my ($where, $options) = (split / /, $line)[4, 5];
  found("access$where", (split /,/, $options)[0]) if $where =~ m{^/sys/fs/cgroup}; }
my ($limit) = grep { -e } '/sys/fs/cgroup/memory.max', '/sys/fs/cgroup/memory/memory.limit_in_bytes';
found('limit', slurp($limit) + 0);
write_to('twin/open', do { open(my $h, '>', '/tmp/file'); close $h; '/tmp/file' });
verdict('twin/mkdir', mkdir '/tmp/own'); verdict('twin/chmod', chmod 0777, '/tmp/file');
verdict('twin/utime', utime 1, 1, '/tmp/file'); verdict('twin/rename', rename '/tmp/file', '/tmp/other');
