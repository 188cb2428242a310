# What the scripts have in common that run tests in a virtual machine without KVM. Source it. TESTS, SANDBOX_TESTS and SECONDS_EACH are
# theirs. `memory` is how much a machine has, `shown` what of its output is shown, `passed` the line that it ends with if all is well.
source "$(dirname "$0")/lib.sh"

memory=4G
shown='^ *(---|[a-z_]+_test\.go|[0-9]+\.[0-9]+\.[0-9]+|panic|machine-tests-passed)'
readonly passed=machine-tests-passed
readonly mirror=http://deb.debian.org
readonly tests=${TESTS:-'In(Every|Any)Way|OOMKill|TheKernelWouldKill'}
readonly sandbox_tests=${SANDBOX_TESTS:-'InEveryWay|TestACommandReachesWhat|TestProgramsAndConnections|TestSocketsFromOutside|TestOtherWays|TestADescriptorThatIsSwappedUnder'}

[[ $EUID -eq 0 ]] || die "run it as root"
work=$(mktemp -d)
finish() {
  trap - EXIT INT TERM HUP
  kill $(jobs -p) 2>/dev/null || true
  wait
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# needs PROGRAM...: all of them are installed.
needs() {
  local program
  for program; do
    command -v "$program" >/dev/null || die "$program is missing: this script's first lines say what to install"
  done
}

# debian_source ARCHIVE SUITE: a line for apt, with the keys of this machine.
debian_source() { echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror/$1 $2 main"; }

# initrd DIRECTORY FILES BUSYBOX MODULES: writes DIRECTORY/initrd for the kernel whose modules are among FILES. Standard input is what
# mounts the machine's root at /newroot.
initrd() {
  local dir=$1 files=$2 busybox=$3 modules=$4 root=$1/initrd.d version name file
  version=$(ls "$files/lib/modules")
  depmod -b "$files" "$version"
  mkdir -p "$root"/{bin,dev,proc,sys,lower,upper,newroot} "$root/lib/modules/$version"
  cp "$busybox" "$root/bin/busybox"
  for name in sh mount modprobe switch_root mkdir poweroff sed; do ln -s busybox "$root/bin/$name"; done
  cp "$files/lib/modules/$version"/modules.* "$root/lib/modules/$version/"
  for name in $modules; do
    modprobe -d "$files" -S "$version" --show-depends "$name" 2>/dev/null | awk '$1 == "insmod" { print $2 }'
  done | sort -u | while read -r file; do
    install -D "$file" "$root/lib/modules/$version/${file##*lib/modules/"$version"/}"
  done
  {
    cat <<INIT
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for m in $modules; do modprobe \$m 2>/dev/null; done
INIT
    cat
    cat <<'INIT'
guest=$(sed 's/.*guest=\([^ ]*\).*/\1/' /proc/cmdline)
mount --move /proc /newroot/proc; mount --move /sys /newroot/sys; mount --move /dev /newroot/dev
exec switch_root /newroot /bin/bash "$guest"
INIT
  } >"$root/init"
  chmod +x "$root/init"
  (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1 >"$dir/initrd")
}

# guest_script RUNNER TESTS [COMMANDS]: prints what a machine does: the tests of the source folder RUNNER, compiled in the folder TESTS.
# COMMANDS prepare the machine.
guest_script() {
  cat <<GUEST
export PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TOOLCALL_FULL=1
mount -t tmpfs tmp /run; mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts; mount -t tmpfs shm /dev/shm; mount -t cgroup2 none /sys/fs/cgroup; ip link set lo up
${3:-}
cd "$1"; uname -rm; failed=0
$2/runner.test -test.v -test.run '$tests' || failed=1
cd sandbox || failed=1
for name in sandbox kernel filter programs sockets; do $2/\$name.test -test.v -test.run '$sandbox_tests' || failed=1; done
[ \$failed = 1 ] || echo $passed
sync; /bin/busybox poweroff -f
GUEST
}

# boot LOG QEMU ARGUMENT...: starts a machine, shows its results, and says whether all tests passed.
boot() {
  local log=$1
  shift
  timeout "${SECONDS_EACH:-1800}" "$1" -accel tcg,thread=multi -smp 2 -m "$memory" -nographic -no-reboot -nodefaults -serial stdio "${@:2}" </dev/null 2>&1 |
    sed -u 's/\r//g' | tee "$log" | grep --line-buffered -E "$shown" &
  # A signal is noticed while the shell waits for what runs in the background.
  wait $! || true
  grep -q "^$passed" "$log"
}

# apt_in DIRECTORY ARCHIVE SUITE NAME: the newest package whose name is a pattern's, unpacked. Its suite's lists aren't kept.
apt_in() {
  local dir=$1 package
  mkdir -p "$dir/lists/partial" "$dir/cache"
  debian_source "$2" "$3" >"$dir/source.list"
  apt=(-o "Dir::Etc::sourcelist=$dir/source.list" -o Dir::Etc::sourceparts=- -o "Dir::State::Lists=$dir/lists" -o "Dir::Cache=$dir/cache"
    -o Dir::State::status=/dev/null -o APT::Sandbox::User=root) # what is installed here doesn't count
  apt-get -qq "${apt[@]}" update
  package=$(apt-cache "${apt[@]}" pkgnames | grep -E "^$4\$" | grep -v unsigned | sort -V | tail -1)
  [[ -n $package ]] || die "$mirror/$2 $3 has no $4"
  (cd "$dir" && apt-get -qq "${apt[@]}" download "$package" && dpkg -x ./*.deb files && rm ./*.deb)
}

# kernel DIRECTORY SERIES: gets the newest kernel of a series.
kernel() {
  local image='linux-image-[0-9].*-cloud-amd64'
  case $2 in
    5.10) apt_in "$1" debian-security bullseye-security "${image/\[0-9]/5[.]10[.]}" ;;
    6.1) apt_in "$1" debian-security bookworm-security "${image/\[0-9]/6[.]1[.]}" ;;
    6.12) apt_in "$1" debian bookworm-backports "${image/\[0-9]/6[.]12[.]}" ;;
    newest) # Its package only names three others.
      apt_in "$1" debian sid "${image/image/base}"
      apt_in "$1" debian sid "${image/image/binary}"
      apt_in "$1" debian sid "${image/image/modules}"
      ;;
    *) die "no kernel $2: name 5.10, 6.1, 6.12 or newest" ;;
  esac
  # Where Debian has it by now.
  [[ -e $1/files/lib ]] || ln -s usr/lib "$1/files/lib"
  [[ -e $1/files/boot ]] || install -D "$1"/files/lib/modules/*/vmlinuz "$1/files/boot/vmlinuz-$2"
}

# sharing_program gets the program that shares this machine's files with others.
sharing_program() { apt_in "$work/share" debian bookworm qemu-system-common; }

# shared_initrd DIRECTORY: as initrd, of a machine whose root are this machine's files, read-only, beneath a layer in memory.
shared_initrd() {
  initrd "$1" "$1/files" "$(command -v busybox)" "virtio_pci virtiofs overlay virtio_blk ext4" <<'INIT'
mount -t virtiofs host /lower && mount -t tmpfs -o size=3g tmp /upper && mkdir /upper/u /upper/w &&
  mount -t overlay -o lowerdir=/lower,upperdir=/upper/u,workdir=/upper/w over /newroot || poweroff -f
INIT
}

# boot_shared DIRECTORY: boots a machine on this machine's files, with DIRECTORY/disk as its disk. It runs DIRECTORY/guest.sh.
boot_shared() {
  local dir=$1 share status=0
  "$work/share/files/usr/lib/qemu/virtiofsd" --socket-path="$dir/share.sock" -o source=/ -o cache=always -o sandbox=chroot >"$dir/share.log" 2>&1 &
  share=$!
  until [[ -S $dir/share.sock ]]; do
    kill -0 "$share" || die "this machine's files can't be shared: $(cat "$dir/share.log")"
    sleep 0.1
  done
  boot "$dir/log" qemu-system-x86_64 -cpu Haswell-noTSX -kernel "$dir"/files/boot/vmlinuz-* -initrd "$dir/initrd" \
    -append "console=ttyS0 quiet panic=-1 no_timer_check guest=$dir/guest.sh" \
    -object "memory-backend-memfd,id=mem,size=$memory,share=on" -numa node,memdev=mem -chardev "socket,id=c,path=$dir/share.sock" \
    -device vhost-user-fs-pci,chardev=c,tag=host -drive "file=$dir/disk,format=raw,if=virtio,cache=unsafe" || status=1
  kill "$share" 2>/dev/null || true
  wait "$share" 2>/dev/null || true
  return "$status"
}
