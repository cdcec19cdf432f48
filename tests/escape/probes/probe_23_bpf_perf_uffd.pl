# Programs and pages for the kernel -> EPERM or ENOSYS. Twin: memory files work.
my $a = "\0" x 256;
for my $cmd (0, 5, 10, 16, 36) { try("k/bpf/$cmd", 'bpf', $cmd, $a, 128); }
try('k/perf', 'perf_event_open', $a, 0, -1, -1, 0); try('k/perf-all', 'perf_event_open', $a, -1, 0, -1, 0);
try('k/uffd', 'userfaultfd', 0); try('k/uffd-user', 'userfaultfd', 1);
try('k/module', 'init_module', $a, 256, ''); try('k/finit', 'finit_module', 0, '', 0);
try('k/delete', 'delete_module', 'x', 0); try('k/kexec', 'kexec_load', 0, 0, 0, 0);
try('k/reboot', 'reboot', 0xfee1dead, 0x28121969, 0, 0); try('k/swapon', 'swapon', '/workspace/x', 0);
try('k/swapoff', 'swapoff', '/workspace/x'); try('k/acct', 'acct', '/workspace/x'); try('k/quota', 'quotactl', 0, 0, 0, 0);
try('k/settime', 'settimeofday', $a, 0); try('k/clock', 'clock_settime', 0, $a);
try('k/handle', 'name_to_handle_at', -100, '/', $a, $a, 0); try('k/by-handle', 'open_by_handle_at', -100, $a, 0);
try('k/persona', 'personality', 0x0400000);
try('memfd', 'memfd_create', 'x', 0); try('persona-read', 'personality', 0xffffffff);
