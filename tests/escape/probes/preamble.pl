# What every probe in Perl starts with: names of system calls and errors are in %nr and %en.
sub found { my ($k, $v) = @_; $v =~ s/\n/ /g; print "$k\t$v\n"; }
sub errname { my $e = shift; return exists $en{$e} ? $en{$e} : "errno$e"; }
sub verdict { my ($k, $done) = @_; my $e = $! + 0; found($k, $done ? "ok" : errname($e)); return $done; }
sub try { my ($k, $n, @a) = @_; die "no number for $n" unless defined $nr{$n};
  $! = 0; my $r = syscall($nr{$n}, @a); verdict($k, $r != -1); return $r; }
sub try_open { my ($k, $p, $f) = @_; my $h; $! = 0; my $r = sysopen($h, $p, $f); verdict($k, $r); return $h; }
sub slurp { my $p = shift; my $h; open($h, '<', $p) or return undef; local $/; my $t = <$h>; return $t; }
sub sys { my ($n, @a) = @_; die "no number for $n" unless defined $nr{$n}; return syscall($nr{$n}, @a); }
sub child { my ($k, $code) = @_; my $pid = fork(); if (!$pid) { $code->(); exit 0; } waitpid($pid, 0); return $?; }
