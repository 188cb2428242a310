# What the scripts have in common that run tests of internal/runner in a virtual machine without KVM. Source it. TESTS, SANDBOX_TESTS and
# SECONDS_EACH are theirs.
source "$(dirname "$0")/lib.sh"

readonly mirror=http://deb.debian.org
readonly tests=${TESTS:-'In(Every|Any)Way'}
readonly sandbox_tests=${SANDBOX_TESTS:-'InEveryWay|TestACommandReachesWhat|TestProgramsAndConnections|TestSocketsFromOutside|TestOtherWays|TestADescriptorThatIsSwappedUnder'}

[[ $EUID -eq 0 ]] || die "run it as root"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

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
[ \$failed = 1 ] || echo machine-tests-passed
sync; /bin/busybox poweroff -f
GUEST
}

# boot LOG QEMU ARGUMENT...: starts a machine, shows its results, and says whether all tests passed.
boot() {
  local log=$1
  shift
  timeout "${SECONDS_EACH:-1800}" "$1" -accel tcg,thread=multi -smp 2 -m 4G -nographic -no-reboot -nodefaults -serial stdio "${@:2}" </dev/null 2>&1 |
    sed -u 's/\r//g' | tee "$log" | grep --line-buffered -E '^ *(---|[a-z_]+_test\.go|[0-9]+\.[0-9]+\.[0-9]+|panic|machine-tests-passed)' || true
  grep -q '^machine-tests-passed' "$log"
}
