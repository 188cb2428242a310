#!/usr/bin/env bash
# Runs the tests of what holds calls under other kernels: kernels.sh [SERIES...], 5.10, 6.1, 6.12 and newest, which is that of Debian's
# unstable release, if none is named. Each boots in a virtual machine without KVM, on this machine's own files: read-only, beneath a layer
# in memory. Kernels and the program that shares the files come from Debian's archive. All of it lies in a temporary folder, which is
# removed at the end.
#
# It needs root, Debian 12, and the packages qemu-system-x86 of bookworm-backports, busybox-static, cpio, kmod, e2fsprogs, gcc and python3.
# TESTS chooses tests of internal/runner, SANDBOX_TESTS those of internal/runner/sandbox and below, SECONDS_EACH bounds a machine.
source "$(dirname "$0")/vm.sh"

series=("$@")
[[ ${#series[@]} -gt 0 ]] || series=(5.10 6.1 6.12 newest)
needs qemu-system-x86_64 busybox cpio depmod mkfs.ext4 gcc python3

# run DIRECTORY: runs the tests in a machine, and says whether they passed.
run() {
  local dir=$1
  # Temporary files are on a disk: an overlay has no files without a name before Linux 6.6.
  guest_script "$PWD/internal/runner" /mnt/bin "mkdir -p /mnt; mount /dev/vda /mnt; mkdir /mnt/tmp /mnt/bin; chmod 1777 /mnt/tmp
cp \"$work\"/*.test /mnt/bin; mount --bind /mnt/tmp /tmp" >"$dir/guest.sh"
  truncate -s 4G "$dir/disk"
  mkfs.ext4 -q "$dir/disk"
  boot_shared "$dir"
}

say "Building the tests"
go test -c -o "$work/" ./internal/runner ./internal/runner/sandbox/...
sharing_program
failed=()
for one in "${series[@]}"; do
  say "Linux $one: getting it from Debian, and booting it"
  kernel "$work/$one" "$one"
  shared_initrd "$work/$one"
  run "$work/$one" || failed+=("$one")
done
[[ ${#failed[@]} -eq 0 ]] || die "tests failed under Linux ${failed[*]}"
say "All tests passed under Linux ${series[*]}"
