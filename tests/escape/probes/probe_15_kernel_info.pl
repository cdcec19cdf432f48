# Read what tells about the kernel's memory and log -> empty or refused. Twin: version and CPUs.
for my $p (qw(kcore kallsyms keys key-users kmsg timer_list sched_debug latency_stats slabinfo vmallocinfo
  pagetypeinfo iomem_ kpagecount kpageflags kpagecgroup)) {
  my $h; $! = 0; my $done = sysopen($h, "/proc/$p", 0x800) && sysread($h, my $b, 64);
  verdict("info/$p", $done) if !$done && $!; found("info/$p", 'empty') if !$done && !$!;
  found("info/$p", 'ok') if $done; }
my $m = slurp('/proc/modules') // ''; found('modules', $m =~ /0x0*[1-9a-f]/ ? 'addresses' : 'none');
my $i = slurp('/proc/iomem') // ''; found('iomem', $i =~ /[1-9a-f]{3}/ ? 'addresses' : 'none');
my $s = slurp('/proc/self/stat') // ''; my @f = split / /, $s; found('wchan', $f[34]);
my $buf = "\0" x 256; try('syslog', 'syslog', 3, $buf, 256);
verdict('status', defined slurp('/proc/self/status'));
