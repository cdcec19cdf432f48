# Leaving the view by `..`, by descriptors, and by what names the groups: the sandbox beside it, the group above and
# the host's tree stay out of sight. Twin: a sandbox does see its own processes by the same files.
my $root = join ',', (stat '/')[0, 1];
opendir(my $all, '/sys/fs/cgroup'); my @below = map { "/sys/fs/cgroup/$_" } grep { !/^\./ } readdir $all;
my @tops = grep { -e "$_/cgroup.procs" } '/sys/fs/cgroup', @below;
found('tops', scalar @tops); my $n = 0;
for my $top (@tops) {
  opendir(my $d, $top); my @dirs = grep { !/^\.\.?$/ && -d "$top/$_" } readdir $d;
  found("below$top", scalar @dirs) unless $top eq '/sys/fs/cgroup' && @tops > 1;
  # Above the own group lies what the sandbox itself has there.
  my $fd = sys('openat', -100, "$top\0", 0x10000, 0); my $up = '..';
  for my $turn (1 .. 6) {
    my $path = "$top/" . join('/', ('..') x $turn);
    found("above$turn$top", (-e "$path/cgroup.procs" || -e "$path/glovebox") ? 'group' : 'none'); }
  chdir $top; chdir '..'; found("left$top", -e 'cgroup.procs' && $top ne '/sys/fs/cgroup' ? 'group' : 'none');
  chdir '/'; for (split /\n/, slurp("$top/cgroup.procs")) { $n++ if -d "/proc/$_"; $n += 1000 if $_ eq '0'; } }
found('seen', $n);
my $names = join ' ', grep { /cgroup/ } split /\n/, slurp('/proc/self/mountinfo');
found('named', $names =~ /sandbox-|glovebox\// ? 'yes' : 'no');
found('own', slurp('/proc/self/cgroup') =~ /sandbox-/ ? 'yes' : 'no');
