#!/bin/sh
# Process 1 of a guest of the VM lab: mounts, loads modules, says that it is ready, and then runs one
# script after the other as the host asks for them.
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root
chmod 755 / # an initramfs begins as 1777, which some programs refuse to trust
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm /dev/virtio-ports
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mount -t tracefs tracefs /sys/kernel/tracing
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ifconfig lo up
failed=
while read -r module; do
	modprobe "$module" || failed="$failed $module"
done </etc/modules
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 agent /agent || failed="$failed /agent"
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share /share || failed="$failed /share"
# The names that udev would give them.
for port in /sys/class/virtio-ports/*; do
	ln -s "/dev/${port##*/}" "/dev/virtio-ports/$(cat "$port/name")"
done
exec 3<>/dev/virtio-ports/apus.agent
echo "ready$failed" >&3
cd /root || exit
while :; do
	if read -r job <&3; then
		sh "/agent/$job.sh" >"/agent/$job.out" 2>"/agent/$job.err" </dev/null 3>&-
		echo "$job $?" >&3
	else
		sleep 1
	fi
done
