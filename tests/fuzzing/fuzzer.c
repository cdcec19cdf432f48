// Makes system calls with random arguments, in a sandbox.
//
// usage: fuzzer TABLE SEED SECONDS OUTSIDE PORT ABSTRACT
//
// TABLE has lines `call NUMBER VERDICT NAME` (allowed, argument, refused, unsupported) and
// `rule NUMBER INDEX ERRNO KIND VALUE...` (any-bit, equals, not-equals, masked), each followed by
// `when INDEX VALUE...` where it holds only for calls with one of these values there. OUTSIDE, PORT and ABSTRACT name a
// file, a TCP port and an abstract Unix socket of the host.
//
// A coordinator keeps a few workers alive until the time is over. A worker is expendable: it may crash, hang or
// stop itself. Whatever a filtered call answers is compared with the table; a difference is printed at the end.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_NUMBER = 1024, MAX_RULES = 64, MAX_VALUES = 16, WORKERS = 4, CALLS_PER_WORKER = 3000, MISMATCHES = 8 };
enum { STALL_MS = 400, ALARM_US = 30000, ARENA_BYTES = 1 << 16, DESCRIPTORS = 27 };

enum verdict { UNKNOWN, ALLOWED, BY_ARGUMENT, REFUSED, UNSUPPORTED };
enum kind { ANY_BIT, EQUALS, NOT_EQUALS, MASKED };

struct rule {
    int number, index, error, count;
    enum kind kind;
    uint64_t values[MAX_VALUES];
    // The rule holds where this argument has one of these values; always where there are none.
    int when_index, when_count;
    uint64_t when_values[MAX_VALUES];
};

struct mismatch {
    long number, answer;
    uint64_t arguments[6];
    // What `seal_of` gives for the rest: a record that a call of a worker scribbled over has another.
    uint64_t seal;
};

// What workers tell the coordinator. A worker may scribble over it: it is evidence, and nothing is steered by it but
// when a worker is given up.
struct shared {
    volatile uint64_t calls[WORKERS], checked[WORKERS];
    volatile uint8_t succeeded[MAX_NUMBER];
    volatile uint32_t mismatch_count;
    struct mismatch mismatches[MISMATCHES];
};

static enum verdict verdicts[MAX_NUMBER];
static struct rule rules[MAX_RULES];
static int rule_count, largest_number;
static struct shared *shared;
static const char *outside, *abstract_name;
static int port;

// --- the table ---

static int read_values(const char *text, uint64_t *values) {
    char rest[400];
    int count = 0;
    snprintf(rest, sizeof rest, "%s", text);
    for (char *value = strtok(rest, " \n"); value && count < MAX_VALUES; value = strtok(NULL, " \n"))
        values[count++] = strtoull(value, NULL, 0);
    return count;
}

static void read_table(const char *path) {
    FILE *file = fopen(path, "r");
    char line[512];
    if (!file) { perror(path); exit(2); }
    while (fgets(line, sizeof line, file)) {
        char word[32];
        int number, index, error, offset;
        if (sscanf(line, "call %d %31s", &number, word) == 2 && number >= 0 && number < MAX_NUMBER) {
            verdicts[number] = !strcmp(word, "allowed") ? ALLOWED : !strcmp(word, "argument") ? BY_ARGUMENT
                : !strcmp(word, "refused") ? REFUSED : !strcmp(word, "unsupported") ? UNSUPPORTED : UNKNOWN;
            if (number > largest_number) largest_number = number;
        } else if (sscanf(line, "rule %d %d %d %31s%n", &number, &index, &error, word, &offset) == 4 &&
                   rule_count < MAX_RULES) {
            struct rule *rule = &rules[rule_count++];
            *rule = (struct rule){ .number = number, .index = index, .error = error };
            rule->kind = !strcmp(word, "any-bit") ? ANY_BIT : !strcmp(word, "equals") ? EQUALS
                : !strcmp(word, "not-equals") ? NOT_EQUALS : MASKED;
            rule->count = read_values(line + offset, rule->values);
        } else if (sscanf(line, "when %d%n", &index, &offset) == 1 && rule_count > 0) {
            struct rule *rule = &rules[rule_count - 1];
            rule->when_index = index;
            rule->when_count = read_values(line + offset, rule->when_values);
        }
    }
    fclose(file);
}

static int is_in_force(const struct rule *rule, const uint64_t *arguments) {
    for (int i = 0; i < rule->when_count; i++)
        if ((uint32_t)arguments[rule->when_index] == (uint32_t)rule->when_values[i]) return 1;
    return rule->when_count == 0;
}

static int matches(const struct rule *rule, uint64_t argument) {
    uint32_t low = (uint32_t)argument, first = (uint32_t)rule->values[0];
    int is_listed = 0;
    for (int i = rule->kind == MASKED; i < rule->count; i++) {
        uint32_t value = (uint32_t)rule->values[i];
        if (rule->kind == ANY_BIT) is_listed |= (low & value) != 0;
        else is_listed |= (rule->kind == MASKED ? low & first : low) == value;
    }
    return rule->kind == NOT_EQUALS ? !is_listed : is_listed;
}

// Whether `answer` is one that the filter gives; -1 when the filter leaves the call to the kernel.
static int is_as_filtered(long number, const uint64_t *arguments, long answer) {
    int is_ruled = 0;
    if (number < 0 || number >= MAX_NUMBER || verdicts[number] == UNKNOWN) return answer == -ENOSYS;
    if (verdicts[number] == REFUSED) return answer == -EPERM;
    if (verdicts[number] == UNSUPPORTED) return answer == -ENOSYS;
    for (int i = 0; i < rule_count; i++) {
        if (rules[i].number != number || !is_in_force(&rules[i], arguments) ||
            !matches(&rules[i], arguments[rules[i].index])) continue;
        is_ruled = 1;
        if (answer == -rules[i].error) return 1;
    }
    return is_ruled ? 0 : -1;
}

static uint64_t seal_of(const struct mismatch *found) {
    uint64_t seal = (uint64_t)found->number * 0x9e3779b97f4a7c15 ^ (uint64_t)found->answer;
    for (int k = 0; k < 6; k++) seal = (seal ^ found->arguments[k]) * 0x94d049bb133111eb + 1;
    return seal;
}

// Whether a record is what a worker wrote, and wrong by the coordinator's own table, which no worker can reach.
static int is_mismatch(const struct mismatch *found) {
    return found->seal == seal_of(found) && is_as_filtered(found->number, found->arguments, found->answer) == 0;
}

// --- random values ---

static uint64_t state;

static uint64_t next(void) {
    state += 0x9e3779b97f4a7c15;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static uint64_t below(uint64_t limit) { return next() % limit; }

static uint8_t *arena;
static int descriptors[DESCRIPTORS];
static const char *paths[] = {
    "/", ".", "..", "", "/..", "/workspace", "/workspace/..", "/workspace/canary/file.txt", "/workspace/canary/link",
    "/workspace/scratch", "/workspace/new", "/tmp/new", "/tmp/other", "/dev/null", "/dev/shm/new", "/dev/pts/ptmx",
    "/dev/tty", "/proc", "/proc/self/mem", "/proc/self/maps", "/proc/self/fd/0", "/proc/self/root/..", "/proc/self/exe",
    "/proc/self/oom_score_adj", "/proc/self/ns/net", "/proc/1/root", "/proc/1/mem", "/proc/1/ns/mnt", "/proc/1/fd/0",
    "/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/proc/kcore", "/sys", "/usr", "/usr/bin/perl", "/etc/passwd",
    "/etc/shadow", "/root", "/home", "/run", "/var/tmp", "/dev/mem", "/dev/sda", "overlay", "tmpfs", "user.note",
};

// A place in the arena with something in it that a kernel may want to find there.
static uint64_t pointer(void) {
    uint8_t *at = arena + 16 * below(ARENA_BYTES / 16 - 64);
    switch (below(10)) {
    case 0: case 1: case 2:
        snprintf((char *)at, 512, "%s", paths[below(sizeof paths / sizeof *paths)]);
        break;
    case 3:
        snprintf((char *)at, 512, "%s", outside);
        break;
    case 4: {
        struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        memcpy(at, &address, sizeof address);
        break;
    }
    case 5: {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", abstract_name);
        memcpy(at, &address, sizeof address);
        break;
    }
    case 6: // Pointers and lengths: an iovec, the words of a command.
        for (int i = 0; i < 8; i++) ((uint64_t *)at)[i] = i % 2 ? below(4096) : (uint64_t)(arena + below(ARENA_BYTES));
        break;
    case 7: // Small numbers: times, ids, descriptors.
        for (int i = 0; i < 16; i++) ((uint32_t *)at)[i] = (uint32_t)below(64);
        break;
    case 8:
        for (int i = 0; i < 16; i++) ((uint64_t *)at)[i] = next();
        break;
    default:
        memset(at, 0, 256);
    }
    return (uint64_t)at;
}

static uint64_t argument(void) {
    static const uint64_t odd[] = {
        0, 1, 2, UINT64_MAX, UINT32_MAX, INT32_MAX, (uint64_t)INT32_MIN, INT64_MAX, 1ull << 32, 4096, 0x1000,
        0xffff888000000000, 0xffffffff81000000, 0x7ffffffff000, (uint64_t)AT_FDCWD, 0x5412, 0x541c, 0x10000000,
    };
    switch (below(12)) {
    case 0: case 1: case 2: case 3: return pointer();
    case 4: case 5: return (uint64_t)descriptors[below(DESCRIPTORS)];
    case 6: return below(64);
    case 7: return odd[below(sizeof odd / sizeof *odd)];
    case 8: return 1ull << below(64);
    case 9: return (1ull << below(32)) | (1ull << below(32));
    case 10: return next() >> below(64);
    default: return (uint64_t)getpid();
    }
}

// --- a worker ---

static long call(long number, const uint64_t *a) {
#if defined(__x86_64__)
    long answer;
    register uint64_t r10 __asm__("r10") = a[3];
    register uint64_t r8 __asm__("r8") = a[4];
    register uint64_t r9 __asm__("r9") = a[5];
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return answer;
#elif defined(__aarch64__)
    register uint64_t x8 __asm__("x8") = (uint64_t)number;
    register uint64_t x0 __asm__("x0") = a[0];
    register uint64_t x1 __asm__("x1") = a[1];
    register uint64_t x2 __asm__("x2") = a[2];
    register uint64_t x3 __asm__("x3") = a[3];
    register uint64_t x4 __asm__("x4") = a[4];
    register uint64_t x5 __asm__("x5") = a[5];
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return (long)x0;
#endif
}

static void nothing(int signal) { (void)signal; }

// One descriptor of every kind, above those that are often hit by small numbers.
static void open_descriptors(void) {
    int pair[2], n = 0;
    char *name = "/workspace/scratch/file";
    mkdir("/workspace/scratch", 0777);
    int opened[DESCRIPTORS] = {
        open("/dev/null", O_RDWR), open("/dev/zero", O_RDWR), open("/dev/urandom", O_RDONLY), open("/dev/pts/ptmx", O_RDWR),
        open(name, O_RDWR | O_CREAT, 0666), open("/workspace", O_RDONLY), open("/proc/self", O_RDONLY), open("/", O_PATH),
        open("/proc/self/mem", O_RDWR), open("/proc/self/maps", O_RDONLY), open("/usr/bin/perl", O_RDONLY),
        open("/dev/shm/file", O_RDWR | O_CREAT, 0666), open("/workspace/canary", O_RDONLY),
        socket(AF_INET, SOCK_STREAM, 0), socket(AF_INET6, SOCK_DGRAM, 0), socket(AF_UNIX, SOCK_STREAM, 0),
        socket(AF_NETLINK, SOCK_RAW, 0),
        epoll_create1(0), eventfd(0, 0), timerfd_create(CLOCK_MONOTONIC, 0), inotify_init1(0),
        memfd_create("note", MFD_ALLOW_SEALING), (int)syscall(SYS_pidfd_open, getpid(), 0),
    };
    for (n = 0; n < DESCRIPTORS && (n < 23); n++) descriptors[n] = opened[n];
    if (pipe(pair) == 0) { descriptors[n++] = pair[0]; descriptors[n++] = pair[1]; }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0) { descriptors[n++] = pair[0]; descriptors[n++] = pair[1]; }
}

// Calls whose target is a process: not the coordinator, and not everybody.
static void spare_coordinator(long number, uint64_t *a) {
    int is_signal = number == SYS_kill || number == SYS_tkill || number == SYS_tgkill || number == SYS_rt_sigqueueinfo ||
        number == SYS_rt_tgsigqueueinfo || number == SYS_pidfd_open || number == SYS_setpriority ||
        number == SYS_ptrace || number == SYS_process_vm_readv || number == SYS_process_vm_writev;
    for (int i = 0; is_signal && i < 2; i++)
        if ((int)a[i] == getppid() || (int)a[i] == -1) a[i] = (uint64_t)getpid();
}

static void work(int slot, uint64_t seed) {
    state = seed;
    setsid();
    int null = open("/dev/null", O_RDWR);
    if (null < 0) _exit(1);
    for (int fd = 0; fd < 3; fd++) dup2(null, fd);
    struct rlimit memory = { 48 << 20, 48 << 20 }, file = { 4 << 20, 4 << 20 }, core = { 0, 0 };
    setrlimit(RLIMIT_FSIZE, &file);
    setrlimit(RLIMIT_CORE, &core);
    open_descriptors();
    arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED) _exit(1);
    setrlimit(RLIMIT_AS, &memory);
    // Whatever blocks is interrupted, for as long as the worker leaves this in place.
    struct sigaction action = { .sa_handler = nothing };
    sigaction(SIGALRM, &action, NULL);
    struct itimerval alarm = { { 0, ALARM_US }, { 0, ALARM_US } };
    setitimer(ITIMER_REAL, &alarm, NULL);
    for (int i = 0; i < CALLS_PER_WORKER; i++) {
        uint64_t a[6];
        long number = (long)below((uint64_t)largest_number + 40);
        for (int k = 0; k < 6; k++) a[k] = argument();
        // Half of the calls that are ruled by an argument get one that the rule is about.
        for (int k = 0; k < rule_count && below(2); k++)
            if (rules[k].number == number) a[rules[k].index] = rules[k].values[below((uint64_t)rules[k].count)] | (below(4) ? 0 : 1ull << 40);
        if (number == SYS_exit || number == SYS_exit_group || number == SYS_rt_sigreturn) continue;
#ifdef SYS_vfork
        // Its child would run on the stack of this function.
        if (number == SYS_vfork) number = SYS_fork;
#endif
        spare_coordinator(number, a);
        pid_t own = getpid();
        long answer = call(number, a);
        if (getpid() != own) _exit(0);
        shared->calls[slot]++;
        int as_filtered = is_as_filtered(number, a, answer);
        if (as_filtered >= 0) shared->checked[slot]++;
        if (as_filtered == 0) {
            // The count is scribbled over like the rest: it only chooses a place.
            uint32_t at = __atomic_fetch_add(&shared->mismatch_count, 1, __ATOMIC_SEQ_CST) % MISMATCHES;
            struct mismatch found = { .number = number, .answer = answer };
            memcpy(found.arguments, a, sizeof a);
            found.seal = seal_of(&found);
            shared->mismatches[at] = found;
        }
        if (answer >= 0 && number >= 0 && number < MAX_NUMBER) shared->succeeded[number] = 1;
    }
    _exit(0);
}

// --- the coordinator ---

static uint64_t now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

int main(int count, char **words) {
    if (count != 7) { fprintf(stderr, "usage: fuzzer TABLE SEED SECONDS OUTSIDE PORT ABSTRACT\n"); return 2; }
    read_table(words[1]);
    uint64_t seed = strtoull(words[2], NULL, 0), end = now_ms() + 1000 * strtoull(words[3], NULL, 0);
    outside = words[4];
    port = atoi(words[5]);
    abstract_name = words[6];
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) { perror("mmap"); return 2; }
    pid_t workers[WORKERS] = { 0 };
    uint64_t seen[WORKERS] = { 0 }, moved[WORKERS] = { 0 }, started = 0, crashed = 0, stalled = 0;
    while (now_ms() < end) {
        for (int slot = 0; slot < WORKERS; slot++) {
            if (workers[slot] > 0) continue;
            uint64_t own_seed = seed * 1000003 + started++;
            pid_t pid = fork();
            if (pid == 0) work(slot, own_seed);
            workers[slot] = pid;
            moved[slot] = now_ms();
        }
        usleep(10000);
        int status;
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
            // A worker that made this process its tracer goes on.
            if (WIFSTOPPED(status)) { ptrace(PTRACE_DETACH, pid, 0, 0); continue; }
            for (int slot = 0; slot < WORKERS; slot++)
                if (workers[slot] == pid) { workers[slot] = 0; crashed += WIFSIGNALED(status); }
        }
        for (int slot = 0; slot < WORKERS; slot++) {
            uint64_t calls = shared->calls[slot];
            if (calls != seen[slot]) { seen[slot] = calls; moved[slot] = now_ms(); }
            if (workers[slot] > 0 && now_ms() - moved[slot] > STALL_MS) {
                kill(workers[slot], SIGKILL);
                moved[slot] = now_ms();
                stalled++;
            }
        }
    }
    for (int slot = 0; slot < WORKERS; slot++) if (workers[slot] > 0) kill(workers[slot], SIGKILL);
    uint64_t calls = 0, checked = 0, succeeded = 0;
    for (int slot = 0; slot < WORKERS; slot++) { calls += shared->calls[slot]; checked += shared->checked[slot]; }
    for (int number = 0; number < MAX_NUMBER; number++) succeeded += shared->succeeded[number];
    unsigned mismatches = 0;
    for (int i = 0; i < MISMATCHES; i++) {
        struct mismatch *found = &shared->mismatches[i];
        if (!is_mismatch(found)) continue;
        mismatches++;
        printf("mismatch number=%ld answer=%ld arguments=", found->number, found->answer);
        for (int k = 0; k < 6; k++) printf("%#lx ", (unsigned long)found->arguments[k]);
        printf("\n");
    }
    printf("calls=%lu checked=%lu succeeded=%lu workers=%lu crashed=%lu stalled=%lu mismatches=%u\n", (unsigned long)calls,
           (unsigned long)checked, (unsigned long)succeeded, (unsigned long)started, (unsigned long)crashed,
           (unsigned long)stalled, mismatches);
    return mismatches ? 1 : 0;
}
