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

# run DIRECTORY: runs the tests in a machine, and says whether they passed.
run() {
  local dir=$1 share status=0
  # Temporary files are on a disk: an overlay has no files without a name before Linux 6.6.
  guest_script "$PWD/internal/runner" /mnt/bin "mkdir -p /mnt; mount /dev/vda /mnt; mkdir /mnt/tmp /mnt/bin; chmod 1777 /mnt/tmp
cp \"$work\"/*.test /mnt/bin; mount --bind /mnt/tmp /tmp" >"$dir/guest.sh"
  truncate -s 4G "$dir/disk"
  mkfs.ext4 -q "$dir/disk"
  "$work/share/files/usr/lib/qemu/virtiofsd" --socket-path="$dir/share.sock" -o source=/ -o cache=always -o sandbox=chroot >"$dir/share.log" 2>&1 &
  share=$!
  until [[ -S $dir/share.sock ]]; do
    kill -0 "$share" || die "this machine's files can't be shared: $(cat "$dir/share.log")"
    sleep 0.1
  done
  boot "$dir/log" qemu-system-x86_64 -cpu Haswell-noTSX -kernel "$dir"/files/boot/vmlinuz-* -initrd "$dir/initrd" \
    -append "console=ttyS0 quiet panic=-1 no_timer_check guest=$dir/guest.sh" \
    -object memory-backend-memfd,id=mem,size=4G,share=on -numa node,memdev=mem -chardev "socket,id=c,path=$dir/share.sock" \
    -device vhost-user-fs-pci,chardev=c,tag=host -drive "file=$dir/disk,format=raw,if=virtio,cache=unsafe" || status=1
  kill "$share" 2>/dev/null || true
  wait "$share" 2>/dev/null || true
  return "$status"
}

say "Building the tests"
go test -c -o "$work/" ./internal/runner ./internal/runner/sandbox/...
apt_in "$work/share" debian bookworm qemu-system-common
failed=()
for one in "${series[@]}"; do
  say "Linux $one: getting it from Debian, and booting it"
  kernel "$work/$one" "$one"
  initrd "$work/$one" "$work/$one/files" "$(command -v busybox)" "virtio_pci virtiofs overlay virtio_blk ext4" <<'INIT'
mount -t virtiofs host /lower && mount -t tmpfs -o size=3g tmp /upper && mkdir /upper/u /upper/w &&
  mount -t overlay -o lowerdir=/lower,upperdir=/upper/u,workdir=/upper/w over /newroot || poweroff -f
INIT
  run "$work/$one" || failed+=("$one")
done
[[ ${#failed[@]} -eq 0 ]] || die "tests failed under Linux ${failed[*]}"
say "All tests passed under Linux ${series[*]}"
