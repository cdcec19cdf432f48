# Write, truncate, map, link, chmod, rename and remove everything in the project and in /usr -> no byte of the host
# changes. Twin: inside, every change shows.
chdir '/workspace/canary';
# A descriptor from before the copy-up, one from after.
open(my $early, '<', 'file.txt'); my $h; verdict('write', open($h, '+<', 'file.txt') && syswrite($h, 'changed'));
my $e; sysread($early, $e, 7); found('early', $e =~ s/\n//r);
verdict('chmod', chmod(0700, 'deep')); verdict('utime', utime(1, 1, 'run.sh'));
verdict('truncate', truncate('.hidden', 1)); verdict('link', link('file.txt', 'hard'));
verdict('unlink', unlink('link')); verdict('rename', rename('deep/er', 'moved')) or 1;
verdict('rmdir', rmdir('empty')); verdict('mkdir', mkdir('empty'));
my $x = 'value'; try('xattr', 'lsetxattr', 'run.sh', 'user.note', $x, 5, 0);
# A shared mapping of a file that was opened for writing.
my $fd = sys('openat', -100, '/workspace/mapped', 2, 0);
my $at = sys('mmap', 0, 4096, 3, 1, $fd, 0); verdict('mmap', $at != -1);
if ($at != -1) { open(my $m, '+<', '/proc/self/mem'); sysseek($m, $at, 0); syswrite($m, 'zzzz'); }
found('mapped', substr(slurp('/workspace/mapped'), 0, 4));
# The same with a descriptor that may only read.
my $ro = sys('openat', -100, '/usr/bin/env', 0, 0); $ro = sys('openat', -100, '/bin/sh', 0, 0) if $ro < 0;
my $shared = sys('mmap', 0, 4096, 1, 1, $ro, 0);
if ($shared != -1) { open(my $m, '+<', '/proc/self/mem'); sysseek($m, $shared, 0); $! = 0;
  verdict('usr-mapped', syswrite($m, 'zzzz')); } else { found('usr-mapped', 'EPERM') }
for my $p ('/usr/bin/perl', '/bin/perl') { next unless -e $p; try_open("usr/open$p", $p, 1);
  $! = 0; verdict("usr/chmod$p", chmod(0777, $p)); $! = 0; verdict("usr/unlink$p", unlink($p));
  $! = 0; verdict("usr/rename$p", rename($p, '/workspace/p')); $! = 0; verdict("usr/link$p", link($p, '/workspace/p')); }
opendir(C, '/workspace/canary'); for (readdir C) { unlink "/workspace/canary/$_" }
