# Write global settings -> refused. Twin: one's own are written.
for my $p (qw(sys/kernel/core_pattern sys/kernel/modprobe sys/kernel/hotplug sys/kernel/panic
  sys/kernel/poweroff_cmd sys/kernel/printk sys/kernel/randomize_va_space sys/kernel/sysrq
  sys/kernel/hostname sys/kernel/domainname sys/kernel/ns_last_pid sys/kernel/pid_max
  sys/kernel/unprivileged_bpf_disabled sys/kernel/yama/ptrace_scope sys/kernel/shmmax
  sys/vm/overcommit_memory sys/vm/drop_caches sys/vm/mmap_min_addr sys/vm/unprivileged_userfaultfd
  sys/fs/binfmt_misc/register sys/fs/protected_symlinks sys/fs/suid_dumpable sys/fs/file-max
  sys/net/ipv4/ip_forward sys/net/core/bpf_jit_enable sys/user/max_user_namespaces
  sysrq-trigger irq/default_smp_affinity timer_list mtrr acpi/alarm scsi/scsi bus/pci/00/00.0
  fs/ext4 kcore kmsg)) {
  next if -d "/proc/$p";
  try_open("write/$p", "/proc/$p", 1); try_open("both/$p", "/proc/$p", 2);
  $! = 0; verdict("chmod/$p", chmod(0666, "/proc/$p")); }
for my $p (qw(/sys/kernel/uevent_helper /sys/power/state /sys/kernel/debug /sys/module)) {
  try_open("sys$p", $p, 0); }
my $h; $! = 0; verdict('own', open($h, '>', '/proc/self/comm') && syswrite($h, 'probe'));
$! = 0; verdict('own-oom', open($h, '>', '/proc/self/oom_score_adj') && syswrite($h, '900'));
