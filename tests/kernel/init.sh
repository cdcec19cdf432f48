#!/bin/sh
# Second and last program of the machine: control groups as systemd arranges them, then one check after the
# other, and off. Every line for the other side begins with `@@ `.
export PATH=/usr/sbin:/usr/bin HOME=/root
groups=/sys/fs/cgroup

/test/busybox mount -t tmpfs run /run
mkdir -p /dev/pts /dev/shm
/test/busybox mount -t devpts -o ptmxmode=666 devpts /dev/pts
/test/busybox mount -t tmpfs shm /dev/shm
/test/busybox mount -t cgroup2 -o nsdelegate cgroup2 "$groups"
/test/busybox ifconfig lo 127.0.0.1 up
# The image was made by whoever runs the tests.
/test/busybox chown -R 0:0 /usr /etc /test /tmp /var
chmod 1777 /tmp

# A second disk, whose file system holds limits of projects (ext4(5)).
/test/busybox mount -t ext4 -o prjquota /dev/vdb /quota
mkdir -m 1777 /quota/tmp

# A service of root's, a login session without and a scope with delegation.
hand_down() {
    echo '+memory +pids +cpu' > "$groups/$1/cgroup.subtree_control"
}
hand_down .
mkdir -p "$groups/system.slice/root" "$groups/user.slice/login" "$groups/user.slice/user/delegated"
hand_down system.slice
hand_down user.slice
chown -R 65534:65534 "$groups/user.slice/user"
hand_down user.slice/user
chown 0:0 "$groups/user.slice/user"/memory.* "$groups/user.slice/user"/pids.* "$groups/user.slice/user"/cpu.*

# check GROUP SECONDS TITLE COMMAND...: the group says who the command is, too.
check() {
    group=$1 limit=$2 title=$3
    shift 3
    case $group in
        root) place=$groups/system.slice/root become='' ;;
        login) place=$groups/user.slice/login become='setpriv --reuid 65534 --regid 65534 --clear-groups' ;;
        delegated) place=$groups/user.slice/user/delegated become='setpriv --reuid 65534 --regid 65534 --clear-groups' ;;
    esac
    echo "@@ begin $title"
    (
        echo 0 > "$place/cgroup.procs"
        cd /tmp
        # A shell stands between: the process group of a child of the first process counts as orphaned, and the
        # kernel hangs such a group up when it finds a stopped member in it (setpgid(2), _exit(2)).
        timeout --signal KILL "$limit" $become "$@" < /dev/null 2>&1
        exit $?
    )
    echo "@@ end $? $title"
}

echo "@@ up $(uname -r)"
export RUST_BACKTRACE=0 GLOVEBOX_TEST_BIN=/test/glovebox GLOVEBOX_TEST_SKIP_LOG=/test/skipped
: > "$GLOVEBOX_TEST_SKIP_LOG"
chmod 666 "$GLOVEBOX_TEST_SKIP_LOG"
. /test/checks
while read -r line; do
    echo "@@ skipped $line"
done < "$GLOVEBOX_TEST_SKIP_LOG"
echo '@@ done'
/test/busybox reboot -f
