#!/bin/sh
# First program of the machine: from memory, to where its disk can be mounted.
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
for module in /modules/*; do
    insmod "$module"
done
mount -t ext4 /dev/vda /root
for dir in dev proc sys; do
    mount --move "/$dir" "/root/$dir"
done
exec switch_root /root /test/init
