# Functions that the scripts in hack/ share. Source it; it changes to the root of the project.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Programs, tests, the linter and the node's programs are built alike, so that Go compiles each package once for all of them. Without
# the tables for debuggers the compiler takes a fifth less time; stack traces don't need them.
export CGO_ENABLED=0
GOFLAGS="$(go env GOFLAGS 2>/dev/null || true) -trimpath -gcflags=all=-dwarf=false"
export GOFLAGS

say() { printf '%s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# tool NAME PACKAGE [MODULE] builds a program of hack/tools, or of a module below it, into bin/; the version is pinned there.
tool() {
  mkdir -p bin
  counted go -C "hack/tools/${3:-}" build -v -o "$PWD/bin/$1" "$2"
}

# counted runs a go command with -v, and prints a line for every hundred packages that it compiles. It drops the command's
# standard output. Where the machine has 3 GiB for each processor, compilers collect no garbage below 2.5 GiB, which takes a quarter
# of their time.
counted() {
  if awk -v processors="$(nproc)" '/^MemTotal:/ { exit $2 < processors * 3 * 1024 * 1024 }' /proc/meminfo 2>/dev/null; then
    local -x GOGC=off GOMEMLIMIT=2500MiB
  fi
  "$@" 2>&1 >/dev/null | awk '
    / / && !/\.test\]$/ { print; fflush(); next } # A download or an error.
    NF && ++n % 100 == 0 { print "  compiled " n " packages"; fflush() }' >&2
}

# cluster runs a command of the local node. TOOLCALL_CLUSTER_PROGRAM is where it is built, on a machine that builds nothing.
cluster() {
  if [[ -n ${TOOLCALL_CLUSTER_PROGRAM:-} ]]; then
    "$TOOLCALL_CLUSTER_PROGRAM" "$@"
  else
    go -C hack/cluster run . "$@"
  fi
}

# use_cluster sets KUBECTL, and KUBECONFIG to the local cluster unless it names another.
use_cluster() {
  local assets
  if [[ -z ${KUBECONFIG:-} ]]; then
    KUBECONFIG=$(cluster kubeconfig) || die "no cluster: run 'make cluster-up', or set KUBECONFIG to the cluster to use"
    export KUBECONFIG
  fi
  if command -v kubectl >/dev/null; then
    KUBECTL=kubectl
  else
    assets=$(cluster assets)
    KUBECTL=$assets/kubectl
  fi
  "$KUBECTL" version >/dev/null 2>&1 || die "the cluster of $KUBECONFIG doesn't answer: is it running? ('make cluster-status' for the local one)"
}

# is_local says whether the cluster in use is the local one.
is_local() { [[ ${KUBECONFIG:-} == "$(cluster kubeconfig 2>/dev/null)" ]]; }

# cluster_type names what made the cluster in use: "local", or by its context's name "kind", "minikube" or "k3d", or "other".
cluster_type() {
  if is_local; then
    echo local
    return
  fi
  case $("$KUBECTL" config current-context 2>/dev/null) in
    kind-?*) echo kind ;;
    k3d-?*) echo k3d ;;
    minikube | minikube-?*) echo minikube ;;
    *) echo other ;;
  esac
}

# load_image TAR... makes the images of archives known to the nodes of the cluster in use.
load_image() {
  local type context tar
  type=$(cluster_type)
  context=$("$KUBECTL" config current-context 2>/dev/null) || context=
  [[ $type == local || $type == other ]] || command -v "$type" >/dev/null || die "the context $context is one of $type, which isn't in PATH: install it, or set the names of images that the cluster can pull"
  for tar in "$@"; do
    case $type in
      local) cluster load "$tar" ;;
      kind) kind load image-archive "$tar" --name "${context#kind-}" ;;
      minikube) minikube --profile "$context" image load "$tar" ;;
      k3d) k3d image import "$tar" --cluster "${context#k3d-}" ;;
      *) die "nobody knows how to load images onto the cluster of the context $context: push them to a registry" ;;
    esac >&2
  done
}

# stamps says whether the cluster in use serves MutatingAdmissionPolicy, which fills in who creates a call.
stamps() {
  local served
  served=$("$KUBECTL" get --raw /apis/admissionregistration.k8s.io/v1) || die "the API server doesn't say which admission policies it serves"
  [[ $served == *'"name":"mutatingadmissionpolicies"'* ]]
}

# only_served passes the objects on that the cluster in use serves.
only_served() {
  if stamps; then
    cat
  else
    say "this cluster has no MutatingAdmissionPolicy: clients say who creates a call"
    awk -v RS='\n---\n' '!/(^|\n)kind: MutatingAdmissionPolicy(Binding)?(\n|$)/ { printf "%s%s", n++ ? "\n---\n" : "", $0 } END { print "" }'
  fi
}

# image_of NAME makes an image of bin/NAME, and sets image to its name, and tar to its archive. The tag is a hash of the program, so
# that pods restart only when it has changed.
image_of() {
  local name=$1 tag
  tag=$(sha256sum "bin/$name" | cut -c1-12)
  tar=$PWD/bin/images/$name-$tag.tar
  image=toolcall.dev/$name:$tag
  mkdir -p bin/images
  if [[ ! -e $tar ]]; then
    say "building image $image"
    rm -f bin/images/"$name"-*.tar
    go -C hack run ./images binary --tag "$image" --entrypoint "/$name" --file "$PWD/bin/$name:/$name" "$tar" >/dev/null
  fi
}

# rollout TYPE/NAME SECONDS TITLE waits until what was installed is ready, and otherwise shows its pods and their logs.
rollout() {
  local selector=app.kubernetes.io/name=${1#*/}
  say "waiting for $3"
  ! "$KUBECTL" -n toolcall-system rollout status "$1" --timeout="$2s" >&2 || return 0
  "$KUBECTL" -n toolcall-system get pods,persistentvolumeclaims -l "$selector" -o wide >&2 || true
  "$KUBECTL" -n toolcall-system logs -l "$selector" --prefix --tail=30 >&2 || true
  die "$3 didn't become ready"
}

# load_program NAME makes the image of bin/NAME known to the nodes of the cluster in use, and sets image to its name.
load_program() {
  local tar
  image_of "$1"
  say "loading image $image"
  load_image "$tar"
}
