# Hoarding terminals, descriptors, inotify instances and watches, timers, message queues and asynchronous I/O contexts
# -> each ends at the documented bound. Twin: a few of each work.
# RLIMIT_NOFILE 7, RLIMIT_SIGPENDING 11, RLIMIT_MSGQUEUE 12
sub limit { my $old = "\0" x 16; syscall($nr{prlimit64}, 0, $_[0], 0, $old); return unpack('Q Q', $old); }
my ($soft, $hard) = limit(7); found('max/descriptors', $hard);
my $all = pack('Q Q', $hard, $hard); try('raise', 'prlimit64', 0, 7, $all, 0);
my $more = pack('Q Q', $hard + 1, $hard + 1); try('raise-more', 'prlimit64', 0, 7, $more, 0);
my @h; while (@h < 5000 && open(my $h, '+<', '/dev/ptmx')) { push @h, $h } found('max/terminals', scalar @h); @h = ();
my $n = 0; my @fds; while ($n < 2000) { my $fd = sys('inotify_init1', 0); last if $fd < 0; push @fds, $fd; $n++ }
found('max/inotify-instances', $n);
my $tmp = "/tmp\0"; try('watch', 'inotify_add_watch', $fds[0], $tmp, 2); sys('close', $_) for @fds;
found('max/pending-signals', (limit(11))[1]);
$n = 0; while ($n < 20000) { my $id = "\0" x 8; last if syscall($nr{timer_create}, 1, 0, $id) == -1; $n++ } found('max/timers', $n);
found('max/message-queue-bytes', (limit(12))[1]);
$n = 0; while ($n < 2000) { my $name = "queue$n\0"; last if try("queue/$n", "mq_open", $name, 0102, 0600, 0) == -1; $n++ }
found('max/message-queues', $n); for (0 .. $n) { my $name = "queue$_\0"; sys('mq_unlink', $name) }
my $cx = "\0" x 8; try('aio', 'io_setup', 1, $cx);
