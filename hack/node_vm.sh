#!/usr/bin/env bash
# Runs end-to-end tests on a node with cgroup v2 and another kernel: node_vm.sh [SERIES], 6.12 if none is named, or another of kernels.sh.
# The node starts in a virtual machine without KVM, on this machine's own files: read-only, beneath a layer in memory. All that it runs is
# built here and put onto the machine's disk, since a translated compiler takes hours. All of it lies in a temporary folder, which is removed
# at the end; the local node of this machine isn't touched.
#
# It needs what kernels.sh needs, and 8 GiB of memory. TESTS chooses tests of test/e2e, a pattern of go test; SLOW is how many times longer
# a start may take than on an ordinary machine; SECONDS_EACH bounds the machine.
source "$(dirname "$0")/vm.sh"

readonly series=${1:-6.12}
readonly machine=$work/$series
readonly disk=$machine/disk.d
readonly slow=${SLOW:-8}
# One test for each thing that the cgroup version, the kernel or the runtime has a part in.
readonly e2e_tests=${TESTS:-'^Test(OutOfMemory|TimeLimit|CancelWhileRunning|Signals|ExitCodes|StreamsAreSeparate|StandardInput|WorkingDirectory|EnvironmentPrecedence|SecretsReachCallsOfTheirToolsAlone|ACallReachesWhatItsPolicyLists|FilesThatACallCollectsAreKept|AProcessFindsWhatPeopleExpect|OperatorKnowsItsMemoryLimit|FilesCarryOverInASession|WaitingPodsTakeAnyCall|OperatorKilledWhileCallsRun)$'}
memory=6G
export SECONDS_EACH=${SECONDS_EACH:-7200}
shown='^( *([-+]|[a-z_]+_test\.go|[0-9]+\.[0-9]+\.[0-9]+|panic|machine-tests-passed)|(ok|FAILED|\[|[a-z]).*)'
needs qemu-system-x86_64 busybox cpio depmod mkfs.ext4

# Modules of a kernel that a node uses: networks of pods, iptables, snapshots, volumes.
readonly node_modules='veth bridge br_netfilter overlay loop dummy nf_conntrack nf_tables nft_compat nft_chain_nat ip_tables iptable_nat
iptable_filter xt_comment xt_MASQUERADE xt_conntrack xt_addrtype xt_mark xt_statistic xt_nat xt_REDIRECT
xt_tcpudp nft_nat nft_masq nft_redir nft_reject_ipv4 nft_reject_ipv6 ipt_REJECT'

# build puts onto the machine's disk what it runs, and sets the names of the images.
build() {
  local name image tar archives cache
  mkdir -p "$disk"/{tmp,bin,images,cache/bin,cache/images}
  chmod 1777 "$disk/tmp"
  hack/build.sh
  hack/build_store.sh
  counted go -C hack/cluster build -v -o "$disk/bin/cluster" .
  TOOLCALL_CLUSTER_PROGRAM=$disk/bin/cluster cluster build
  go test -vet=off -c -o "$disk/bin/e2e.test" ./test/e2e
  for name in manager runner store; do
    image_of "$name"
    cp "$tar" "$disk/images/"
    printf -v "${name}_image" '%s' "$image"
  done
  mapfile -t archives < <(hack/load-tools.sh build)
  cp "${archives[@]}" "$disk/images/"
  cache=$(dirname "$(dirname "$("$disk/bin/cluster" program etcd)")")
  for name in etcd kubelet containerd runc ptp coredns provisioner; do
    cp -r "$(dirname "$("$disk/bin/cluster" program "$name")")" "$disk/cache/bin/"
  done
  cp "${cache%/bin}"/images/pause-*.tar "$disk/cache/images/"
}

# guest prints what the machine does.
guest() {
  cat <<GUEST
export PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
export GOFLAGS=-buildvcs=false GOTOOLCHAIN=local TMPDIR=/mnt/tmp TOOLCALL_NO_INSTALL=1 TOOLCALL_CACHE=/mnt/cache
export TOOLCALL_CLUSTER_PROGRAM=/mnt/bin/cluster TOOLCALL_CLUSTER_DIR=/mnt/cluster TOOLCALL_CLUSTER_NO_FSYNC=1 TOOLCALL_CLUSTER_SLOW=$slow
export MANAGER_IMAGE=$manager_image RUNNER_IMAGE=$runner_image STORE_IMAGE=$store_image
mount -t tmpfs tmp /run; mkdir -p /dev/pts /dev/shm /mnt /lib/modules; [ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
mount -t devpts devpts /dev/pts; mount -t tmpfs shm /dev/shm; mount -t cgroup2 none /sys/fs/cgroup; ip link set lo up
ln -sfn "$machine/files/lib/modules/\$(uname -r)" "/lib/modules/\$(uname -r)"
for name in $(echo $node_modules); do modprobe "\$name"; done
mount /dev/vda /mnt; mount --bind /mnt/tmp /tmp
cd "$PWD"; mkdir -p bin/test; ln -sf /mnt/bin/cluster bin/test/cluster; uname -rm
say() { echo "\$(cut -d. -f1 /proc/uptime) s: \$*"; }
control() {
  for name in kubelet kube-controller-manager kube-scheduler kube-proxy coredns provisioner; do \$TOOLCALL_CLUSTER_PROGRAM "\$1" "\$name"; done
}
run() {
  say "starting the node"
  \$TOOLCALL_CLUSTER_PROGRAM up || return 1
  say "loading the images"
  # Translated, an idle node uses a whole processor. What asks the API server pauses meanwhile.
  control stop; \$TOOLCALL_CLUSTER_PROGRAM load /mnt/images/*.tar || return 1; control start
  export KUBECONFIG=\$(\$TOOLCALL_CLUSTER_PROGRAM kubeconfig)
  # A client gives up on an API server after ten seconds.
  for ((tries = 60; tries > 0; tries--)); do kubectl get nodes -o wide && break; sleep 5; done
  say "installing the operator"
  hack/deploy.sh || return 1
  # The node says that pods aren't ready while it is late itself.
  kubectl -n toolcall-system wait --for=condition=Available --timeout=$((60 * slow))s deployment/toolcall-operator || return 1
  say "running the tests"
  cd test/e2e || return 1
  TOOLCALL_E2E=1 /mnt/bin/e2e.test -test.v -test.parallel 1 -test.timeout 3h -test.run '$e2e_tests'
}
if run; then say "all is well"; echo $passed; else say "failed"; tail -n 40 /mnt/cluster/logs/*.log; fi
sync; /bin/busybox poweroff -f
GUEST
}

say "Building what the machine runs"
build
say "Linux $series: getting it from Debian, and booting it"
sharing_program
kernel "$machine" "$series"
shared_initrd "$machine"
guest >"$machine/guest.sh"
truncate -s 12G "$machine/disk"
mkfs.ext4 -q -d "$disk" "$machine/disk"
rm -rf "$disk"
boot_shared "$machine" || die "tests failed under Linux $series"
say "All tests passed under Linux $series"
