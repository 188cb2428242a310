#!/usr/bin/env bash
# Starts the local cluster, installs the operator, runs the calls of config/samples, one after the other and in a session,
# and shows their results. Running it again repeats the calls.
#
# KUBECONFIG can name another cluster. Push the three images to a registry first, and set MANAGER_IMAGE, RUNNER_IMAGE and
# TOOLS_IMAGE to their names.
source "$(dirname "$0")/lib.sh"

readonly NAMESPACE=toolcall-demo
readonly CALLS=config/samples/10-calls.yaml
readonly SESSION=config/samples/20-sessions.yaml

# expected prints how each sample call must end: name, phase, reason, exit code. Those of the session are called desk-*.
expected() {
  cat <<'END'
git Succeeded Completed 0
pipeline Succeeded Completed 0
failing Failed NonZeroExit 2
both-streams Succeeded Completed 0
stdin Succeeded Completed 0
variables Succeeded Completed 0
python Succeeded Completed 0
as-emitted Succeeded Completed 0
too-slow Failed TimedOut -
denied Denied ArgumentNotAllowed -
nowhere Failed EnvironmentNotFound -
walls Failed NonZeroExit 3
desk-write Succeeded Completed 0
desk-add Succeeded Completed 0
desk-read Succeeded Completed 0
desk-fetch Succeeded Completed 0
END
}

# expected_refusals prints what must be refused to the call "walls": two programs by its status, and a write by its
# output, which follows.
expected_refusals() {
  cat <<'END'
/usr/bin/curl NotListed
/usr/bin/rm NotListed
curl -s https://example.com -> Permission denied
rm -rf /usr -> Permission denied
/etc/planted -> Permission denied
/workspace/allowed is written
END
}

# expected_basket prints what the session's calls read of the file that they share: sorted, and from the session's server.
expected_basket() { printf '%s\n' apple fig pear pear fig apple; }

log=$(mktemp)

# started says that this run starts the local cluster.
started=

# finish ends what runs beside the demo, also after a failure or a signal. After a signal it takes down a cluster that this run started:
# after a failure the cluster stays, to be looked at.
finish() {
  local status=$? each
  trap - EXIT INT TERM
  for each in "${behind[@]}"; do kill -INT -- "-${each%% *}" 2>/dev/null || true; done
  wait
  if ((status > 128)) && [[ -n $started ]]; then
    say "interrupted: taking down the local cluster"
    cluster down || true
  fi
  rm -f "$log" "$log".*
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

micros() { printf '%s' "${EPOCHREALTIME/[.,]/}"; }

# seconds prints the time since a value of micros.
seconds() {
  local tenths=$((($(micros) - $1) / 100000))
  printf '%d.%d s' $((tenths / 10)) $((tenths % 10))
}

# step runs a command and prints how long it took. It shows the output of a command that fails.
step() {
  local title=$1 began
  shift
  began=$(micros)
  printf '%s ... ' "$title" >&2
  if ! "$@" >"$log" 2>&1; then
    printf 'failed\n' >&2
    cat "$log" >&2
    exit 1
  fi
  printf '%s\n' "$(seconds "$began")" >&2
}

require_go() {
  local need
  need=$(awk '$1 == "go" { print $2 }' go.mod)
  command -v go >/dev/null || die "install Go $need or newer: 'go' isn't in PATH; see https://go.dev/doc/install"
  go list -m >/dev/null 2>"$log" ||
    die "install Go $need or newer; this is $(GOTOOLCHAIN=local go env GOVERSION): $(<"$log")"
}

require_root() {
  [[ $(uname -s) == Linux ]] || die "the local cluster needs Linux: use a Linux machine, or set KUBECONFIG to a cluster of yours"
  [[ $(id -u) == 0 ]] || die "the local cluster needs root (namespaces, cgroups, mounts): run 'sudo -E env \"PATH=\$PATH\" make demo', or set KUBECONFIG to a cluster of yours"
}

# on_local says whether the demo uses the local cluster, which may not run yet.
on_local() { [[ -z ${KUBECONFIG:-} ]] || is_local; }

start_cluster() {
  cluster status >/dev/null 2>&1 || started=yes
  cluster up >&2
}

tool_image() { go -C hack run ./images tool; }

# load_tools loads the tool image onto the node.
load_tools() { cluster load "$(tool_image)"; }

# behind runs a command beside what follows, in a process group of its own; caught_up waits for all of them, and shows the output
# of one that failed.
behind=()
behind() {
  set -m
  "$@" >"$log.$1" 2>&1 </dev/null &
  set +m
  behind+=("$! $log.$1")
}
caught_up() {
  local each pid output
  for each in "${behind[@]}"; do
    read -r pid output <<<"$each"
    wait "$pid" || { cat "$output" >&2; return 1; }
  done
  behind=()
}

# own_programs builds the operator and the output store. It begins when the node's programs are there,
# which are made of the same packages.
own_programs() {
  hack/build.sh
  hack/build_store.sh
}

install_all() {
  if on_local; then
    require_root
    say "tool image: Debian with bash, coreutils, git and python3; the first time it is built while the node's programs are"
    behind tool_image
    say "local cluster: one Kubernetes node; the first time it is built from source, which takes minutes"
    cluster build >&2
    behind own_programs
    start_cluster
    step "building the tool image and the operator" caught_up
    step "loading the tool image" load_tools
  elif [[ -z ${MANAGER_IMAGE:-} || -z ${RUNNER_IMAGE:-} || -z ${TOOLS_IMAGE:-} ]]; then
    die "set MANAGER_IMAGE, RUNNER_IMAGE and TOOLS_IMAGE to images that this cluster can pull; docs/install.md says how to build them"
  fi
  step "building the operator" make --no-print-directory build
  step "installing the operator" hack/deploy.sh
}

# apply_samples deletes the calls of an earlier demo first: a call runs only once.
apply_samples() {
  "$KUBECTL" delete --ignore-not-found --wait --timeout=60s -f "$CALLS" -f "$SESSION"
  "$KUBECTL" kustomize config/samples |
    sed "s|toolcall.dev/tools:dev|${TOOLS_IMAGE:-toolcall.dev/tools:dev}|" | "$KUBECTL" apply -f -
}

# call_names prints the calls that end by themselves, with the kind.
call_names() { expected | sed 's|^\([^ ]*\) .*|tc/\1|'; }

# await_calls waits for the calls to end. The session's server doesn't: it runs.
await_calls() {
  local names
  mapfile -t names < <(call_names)
  "$KUBECTL" wait -n "$NAMESPACE" --for=condition=Finished --timeout=180s "${names[@]}"
  "$KUBECTL" wait -n "$NAMESPACE" --for=jsonpath='{.status.phase}'=Running --timeout=60s tc/desk-server
}

# outcomes prints each call's name, phase, reason, exit code and milliseconds, with a dash for a missing value.
outcomes() {
  local names
  mapfile -t names < <(call_names)
  "$KUBECTL" get -n "$NAMESPACE" "${names[@]}" -o go-template='{{range .items}}{{.metadata.name}} {{.status.phase}} {{.status.reason}} {{if exists .status "exitCode"}}{{.status.exitCode}}{{else}}-{{end}} {{if exists .status "durationMilliseconds"}}{{.status.durationMilliseconds}}{{else}}-{{end}}{{"\n"}}{{end}}'
}

show_table() {
  local name phase reason code took
  printf '\n%-14s %-10s %-20s %5s %10s\n' CALL PHASE REASON EXIT DURATION
  while read -r name phase reason code took; do
    [[ $took == - ]] || took="$((took / 1000)).$(printf %03d $((took % 1000))) s"
    printf '%-14s %-10s %-20s %5s %10s\n' "$name" "$phase" "$reason" "$code" "$took"
  done
}

# show_outputs prints each call's action, the reason unless it succeeded, the programs that were refused to it, and the
# text for a model. In the template's output a byte 1 starts a call.
show_outputs() {
  local template='{{range .items}}{{"\x01"}}{{.metadata.name}}{{if exists .status "action"}}: {{.status.action.summary}}{{end}}{{"\n"}}'
  template+='{{if ne .status.phase "Succeeded"}}{{.status.reason}}: {{.status.message}}{{"\n"}}{{end}}'
  template+='{{if exists .status "refused"}}{{range .status.refused}}refused: {{.path}} ({{.rule}}){{"\n"}}{{end}}{{end}}'
  template+='{{if exists .status "output"}}{{if ne .status.output .status.message}}{{.status.output}}{{"\n"}}{{end}}{{end}}{{end}}'
  local names
  mapfile -t names < <(call_names)
  "$KUBECTL" get -n "$NAMESPACE" "${names[@]}" -o go-template="$template" |
    awk 'sub(/^\001/, "") { print "\n" $0; next } { print ($0 == "" ? "" : "    " $0) }'
}

# show_session prints the session, whose calls share a file, with the server that still runs in it.
show_session() {
  printf '\nThe session "desk", in which the calls desk-* ran (kubectl toolcall session describe desk):\n\n'
  bin/kubectl-toolcall session describe desk -n "$NAMESPACE" | sed 's/^\(.\)/    \1/'
}

# basket prints what the session's calls read of the file that they share.
basket() { "$KUBECTL" get -n "$NAMESPACE" tc/desk-read tc/desk-fetch -o jsonpath='{range .items[*]}{.status.stdout}{end}'; }

# refusals prints what was refused to the call "walls", and its output.
refusals() {
  "$KUBECTL" get -n "$NAMESPACE" tc/walls -o jsonpath='{range .status.refused[*]}{.path} {.rule}{"\n"}{end}{.status.stdout}'
}

# unexpected prints the calls that didn't end as expected, and what was refused or read if that is something else.
unexpected() {
  local name want got
  while read -r name want; do
    got=$(awk -v name="$name" '$1 == name { print $2, $3, $4 }' <<<"$1")
    [[ $got == "$want" ]] || printf 'call %s ended as "%s", expected is "%s"\n' "$name" "$got" "$want"
  done < <(expected)
  got=$(refusals)
  [[ $got == "$(expected_refusals)" ]] || printf 'to the call walls was refused:\n%s\nexpected is:\n%s\n' "$got" "$(expected_refusals)"
  got=$(basket)
  [[ $got == "$(expected_basket)" ]] || printf 'the calls of the session read:\n%s\nexpected is:\n%s\n' "$got" "$(expected_basket)"
}

# show_next prints commands to try next.
show_next() {
  printf '\nWhat to type next:\n\nexport KUBECONFIG=%s\n' "$KUBECONFIG"
  [[ $KUBECTL == kubectl ]] || printf 'export PATH=$PATH:%s\n' "$(dirname "$KUBECTL")"
  cat <<'END'
kubectl get toolcalls.toolcall.dev -n toolcall-demo
kubectl get tc failing -n toolcall-demo -o yaml
kubectl get tc walls -n toolcall-demo -o yaml
kubectl explain toolcalls.spec --api-version=toolcall.dev/v1alpha1

# A call of your own:
call=$(kubectl create -o name -f - <<'YAML'
apiVersion: toolcall.dev/v1alpha1
kind: ToolCall
metadata:
  generateName: mine-
  namespace: toolcall-demo
spec:
  shell:
    command: id; uname -sr
YAML
)
kubectl wait -n toolcall-demo --for=condition=Finished "$call"
kubectl get -n toolcall-demo "$call" -o jsonpath='{.status.output}{"\n"}'

# More in the session, which ends after 15 minutes without a call:
export PATH=$PATH:$PWD/bin
kubectl toolcall session exec desk -n toolcall-demo -- ls -l
kubectl toolcall cancel desk-server -n toolcall-demo
kubectl toolcall session end desk -n toolcall-demo

# One that is cancelled:
call=$(kubectl create -o name -f - <<'YAML'
apiVersion: toolcall.dev/v1alpha1
kind: ToolCall
metadata:
  generateName: long-
  namespace: toolcall-demo
spec:
  shell:
    command: echo working; sleep 100
YAML
)
sleep 2
kubectl patch -n toolcall-demo "$call" --type=merge -p '{"spec":{"cancel":true}}'
kubectl wait -n toolcall-demo --for=condition=Finished "$call"
kubectl get -n toolcall-demo "$call"

# Remove the demo, the operator, the cluster:
kubectl delete namespace toolcall-demo
make undeploy
END
  ! on_local || printf 'make cluster-down\n'
}

main() {
  local began results wrong
  began=$(micros)
  require_go
  install_all
  use_cluster
  step "creating the sample calls" apply_samples
  step "waiting for them to end" await_calls
  results=$(outcomes)
  show_table <<<"$results"
  show_outputs
  show_session
  show_next
  wrong=$(unexpected "$results")
  [[ -z $wrong ]] || die "$wrong"
  printf '\nAll calls ended as expected. The demo took %s.\n' "$(seconds "$began")"
}

main "$@"
