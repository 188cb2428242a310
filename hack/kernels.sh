#!/usr/bin/env bash
# Runs the tests of what holds calls under other kernels: kernels.sh [SERIES...], 5.10, 6.1 and 6.12 if none is named. Each boots in a
# virtual machine without KVM, on this machine's own files: read-only, beneath a layer in memory. Kernels and the program that shares
# the files come from Debian's archive. All of it lies in a temporary folder, which is removed at the end.
#
# It needs root, Debian 12, and the packages qemu-system-x86 of bookworm-backports, busybox-static, cpio, kmod, gcc and python3.
# TESTS chooses tests of internal/runner, SANDBOX_TESTS those of internal/runner/sandbox, SECONDS_EACH bounds a machine.
source "$(dirname "$0")/lib.sh"

readonly mirror=http://deb.debian.org
readonly seconds=${SECONDS_EACH:-1800}
readonly tests=${TESTS:-'In(Every|Any)Way'}
readonly sandbox_tests=${SANDBOX_TESTS:-'InEveryWay|TestACommandReachesWhat|TestProgramsAndConnections|TestSocketsFromOutside|TestOtherWays|TestADescriptorThatIsSwappedUnder'}
series=("$@")
[[ ${#series[@]} -gt 0 ]] || series=(5.10 6.1 6.12)
[[ $EUID -eq 0 ]] || die "run it as root: it boots a machine on this one's files"
for program in qemu-system-x86_64 busybox cpio depmod mkfs.ext4 gcc python3; do
  command -v "$program" >/dev/null || die "$program is missing: install qemu-system-x86 (bookworm-backports), busybox-static, cpio, kmod, e2fsprogs, gcc, python3"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# apt_in DIRECTORY SUITE NAME: the newest package of a name, unpacked. Its suite's lists aren't kept.
apt_in() {
  local dir=$1 suite=$2 name=$3
  mkdir -p "$dir/lists/partial" "$dir/cache"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror/$suite main" >"$dir/source.list"
  apt=(-o "Dir::Etc::sourcelist=$dir/source.list" -o Dir::Etc::sourceparts=- -o "Dir::State::Lists=$dir/lists" -o "Dir::Cache=$dir/cache"
    -o Dir::State::status=/dev/null -o APT::Sandbox::User=root) # what is installed here doesn't count
  apt-get -qq "${apt[@]}" update
  local package
  package=$(apt-cache "${apt[@]}" pkgnames "$name" | grep -E "^($name|$name.*-cloud-amd64)$" | grep -v unsigned | sort -V | tail -1)
  [[ -n $package ]] || die "$mirror/$suite has no $name"
  (cd "$dir" && apt-get -qq "${apt[@]}" download "$package" && dpkg -x ./*.deb files && rm ./*.deb)
}

suite_of() {
  case $1 in
    5.10) echo 'debian-security bullseye-security' ;;
    6.1) echo 'debian-security bookworm-security' ;;
    6.12) echo 'debian bookworm-backports' ;;
    *) die "no kernel $1: name 5.10, 6.1 or 6.12" ;;
  esac
}

# initrd DIRECTORY: what mounts this machine's files and goes on with them.
initrd() {
  local dir=$1 root=$1/root version module file
  version=$(ls "$dir/files/lib/modules")
  depmod -b "$dir/files" "$version"
  mkdir -p "$root"/{bin,dev,proc,sys,lower,upper,newroot} "$root/lib/modules/$version"
  cp "$(command -v busybox)" "$root/bin/busybox"
  for module in sh mount modprobe switch_root mkdir poweroff sed; do ln -s busybox "$root/bin/$module"; done
  cp "$dir/files/lib/modules/$version"/modules.* "$root/lib/modules/$version/"
  for module in virtio_pci virtiofs overlay virtio_blk ext4; do
    modprobe -d "$dir/files" -S "$version" --show-depends "$module" 2>/dev/null | awk '$1 == "insmod" { print $2 }'
  done | sort -u | while read -r file; do
    install -D "$file" "$root/lib/modules/$version/${file##*lib/modules/"$version"/}"
  done
  cat >"$root/init" <<'INIT'
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for m in virtio_pci virtiofs overlay virtio_blk ext4; do modprobe $m 2>/dev/null; done
mount -t virtiofs host /lower && mount -t tmpfs -o size=3g tmp /upper && mkdir /upper/u /upper/w &&
  mount -t overlay -o lowerdir=/lower,upperdir=/upper/u,workdir=/upper/w over /newroot || poweroff -f
guest=$(sed 's/.*guest=\([^ ]*\).*/\1/' /proc/cmdline)
mount --move /proc /newroot/proc; mount --move /sys /newroot/sys; mount --move /dev /newroot/dev
exec switch_root /newroot /bin/bash "$guest"
INIT
  chmod +x "$root/init"
  (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1 >"$dir/initrd")
}

# boot DIRECTORY: runs the tests in a machine, and says whether they passed.
boot() {
  local dir=$1 share status
  # Temporary files are on a disk: an overlay has no files without a name before Linux 6.6.
  cat >"$dir/guest.sh" <<GUEST
export PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t tmpfs tmp /run; mkdir -p /dev/pts /dev/shm /mnt
mount -t devpts devpts /dev/pts; mount -t tmpfs shm /dev/shm; mount -t cgroup2 none /sys/fs/cgroup
mount /dev/vda /mnt; mkdir /mnt/tmp /mnt/bin; chmod 1777 /mnt/tmp; cp "$work"/*.test /mnt/bin; ip link set lo up
cd "$PWD/internal/runner" && mount --bind /mnt/tmp /tmp; uname -r; failed=0
/mnt/bin/runner.test -test.v -test.run '$tests' || failed=1
cd sandbox && /mnt/bin/sandbox.test -test.v -test.run '$sandbox_tests' || failed=1
[ \$failed = 1 ] || echo kernel-tests-passed
sync; /bin/busybox poweroff -f
GUEST
  truncate -s 4G "$dir/disk"
  mkfs.ext4 -q "$dir/disk"
  "$work/share/files/usr/lib/qemu/virtiofsd" --socket-path="$dir/share.sock" -o source=/ -o cache=always -o sandbox=chroot >"$dir/share.log" 2>&1 &
  share=$!
  until [[ -S $dir/share.sock ]]; do
    kill -0 "$share" || die "this machine's files can't be shared: $(cat "$dir/share.log")"
    sleep 0.1
  done
  timeout "$seconds" qemu-system-x86_64 -accel tcg,thread=multi -cpu Haswell-noTSX -smp 2 -m 4G -nographic -no-reboot -nodefaults -serial stdio \
    -kernel "$dir"/files/boot/vmlinuz-* -initrd "$dir/initrd" -append "console=ttyS0 quiet panic=-1 no_timer_check guest=$dir/guest.sh" \
    -object memory-backend-memfd,id=mem,size=4G,share=on -numa node,memdev=mem -chardev "socket,id=c,path=$dir/share.sock" \
    -device vhost-user-fs-pci,chardev=c,tag=host -drive "file=$dir/disk,format=raw,if=virtio,cache=unsafe" </dev/null 2>&1 |
    tr -d '\r' | tee "$dir/log" | grep --line-buffered -E '^ *(---|[a-z_]+_test\.go|[0-9]+\.[0-9]+\.[0-9]+|panic|kernel-tests-passed)' || true
  status=0
  grep -q '^kernel-tests-passed' "$dir/log" || status=1
  kill "$share" 2>/dev/null || true
  wait "$share" 2>/dev/null || true
  return "$status"
}

echo "Building the tests"
go test -c -o "$work/runner.test" ./internal/runner
go test -c -o "$work/sandbox.test" ./internal/runner/sandbox
apt_in "$work/share" 'debian bookworm' qemu-system-common
failed=()
for kernel in "${series[@]}"; do
  echo "Linux $kernel: getting it from Debian, and booting it"
  apt_in "$work/$kernel" "$(suite_of "$kernel")" "linux-image-$kernel."
  initrd "$work/$kernel"
  boot "$work/$kernel" || failed+=("$kernel")
done
[[ ${#failed[@]} -eq 0 ]] || die "tests failed under Linux ${failed[*]}"
echo "All tests passed under Linux ${series[*]}"
