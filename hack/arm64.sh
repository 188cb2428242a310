#!/usr/bin/env bash
# Runs the tests of what holds calls on arm64: arm64.sh. It boots Debian's kernel for arm64, with programs from Debian's archive, in a
# virtual machine whose processor is translated, so it takes half an hour. All of it lies in a temporary folder, which is removed at the
# end.
#
# It needs root, Debian 12, and the packages qemu-system-arm of bookworm-backports, cpio, kmod and e2fsprogs. TESTS chooses tests of
# internal/runner, SANDBOX_TESTS those of internal/runner/sandbox and below, SECONDS_EACH bounds the machine.
source "$(dirname "$0")/vm.sh"

needs qemu-system-aarch64 cpio depmod mkfs.ext4

# archive DIRECTORY PACKAGE...: unpacks Debian's packages for arm64, with what they depend on.
archive() {
  local dir=$1 package
  shift
  mkdir -p "$dir"/{lists/partial,cache/archives/partial} "$dir"/root/usr/{bin,sbin,lib}
  : >"$dir/status"
  debian_source debian bookworm >"$dir/source.list"
  apt=(-qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o "Dir::Etc::sourcelist=$dir/source.list" -o Dir::Etc::sourceparts=-
    -o "Dir::State::Lists=$dir/lists" -o "Dir::State::status=$dir/status" -o "Dir::Cache=$dir/cache" -o APT::Sandbox::User=root -o Debug::NoLocking=1)
  apt-get "${apt[@]}" update
  apt-get "${apt[@]}" install -y --no-install-recommends --download-only "$@" >/dev/null
  for package in bin sbin lib; do ln -s "usr/$package" "$dir/root/$package"; done
  for package in "$dir"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$dir/root"
    rm "$package"
  done
}

readonly machine=$work/arm64
readonly tree=$machine/root
say "Building the tests"
GOARCH=arm64 go test -c -o "$work/" ./internal/runner ./internal/runner/sandbox/...

say "Getting Debian's programs and kernel for arm64"
archive "$machine" base-files bash busybox-static coreutils curl dash diffutils findutils gawk gcc git grep gzip iproute2 less libc6-dev \
  linux-image-cloud-arm64 make mawk mount passwd perl procps python3 sed tar util-linux
cp /etc/passwd /etc/group "$tree/etc/"
ln -sf mawk "$tree/usr/bin/awk"
ln -sf dash "$tree/usr/bin/sh"
initrd "$machine" "$tree" "$tree/usr/bin/busybox" "virtio_pci virtio_blk ext4" <<'INIT'
mount -t ext4 /dev/vda /newroot || poweroff -f
INIT
mv "$tree"/boot/vmlinuz-* "$machine/kernel"
rm -rf "$tree"/boot/* "$tree"/usr/lib/modules
# The tests read their data beside them.
mkdir -p "$tree/src/internal/runner/sandbox" "$tree/tmp" "$tree"/{proc,sys,dev,run,root}
chmod 1777 "$tree/tmp"
cp -r internal/guards "$tree/src/internal/"
cp -r internal/runner/testdata "$tree/src/internal/runner/"
cp "$work"/*.test "$tree/src/"
guest_script /src/internal/runner /src >"$tree/guest.sh"
truncate -s 4G "$machine/disk"
mkfs.ext4 -q -d "$tree" "$machine/disk"
rm -rf "$tree"

boot "$machine/log" qemu-system-aarch64 -machine virt,gic-version=3 -cpu cortex-a76 -kernel "$machine/kernel" -initrd "$machine/initrd" \
  -append "console=ttyAMA0 quiet panic=-1 guest=/guest.sh" -drive "file=$machine/disk,format=raw,if=virtio,cache=unsafe" || die "tests failed on arm64"
say "All tests passed on arm64"
