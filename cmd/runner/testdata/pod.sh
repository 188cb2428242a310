# Becomes a command in a pod's file system: the machine's files, of which the pod has a copy of its own. Whatever the
# command writes there, the machine keeps its own. Only the directories SHARED and BIN are the machine's.
# Usage: sh pod.sh SCRATCH SHARED BIN COMMAND...
set -e
scratch=$1 shared=$2 bin=$3
shift 3
mount -t tmpfs pod "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
mount -t overlay pod -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
cd "$scratch/root"
mount -t tmpfs -o mode=1777 pod tmp
mount -t tmpfs -o mode=755 pod dev
mkdir -m 1777 dev/shm
for name in null zero full random urandom tty; do
  : >dev/$name
  mount --bind /dev/$name dev/$name
done
mount -t proc pod proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
memory=sys/fs/cgroup/memory
if [ -d /$memory ]; then
  mkdir -p $memory
  mount --bind /$memory $memory
  mount -o remount,bind,ro $memory
fi
for dir in "$shared" "$bin"; do
  mkdir -p ".$dir"
  mount --bind "$dir" ".$dir"
done
exec "$(PATH=$PATH:/usr/sbin:/sbin command -v chroot)" . /bin/sh -c 'cd "$0" && exec "$@"' "$shared/work" "$@"
