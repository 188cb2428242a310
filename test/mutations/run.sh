#!/usr/bin/env bash
# Breaks one promise after another in a copy of the project, and fails when the test that shows the promise passes
# nevertheless. Arguments are names of patches, without ".patch"; without any, all are tried.
#
# The copy is a temporary git worktree of HEAD. It is removed at the end, also after a signal.
source "$(dirname "$0")/../../hack/lib.sh"

# Job control gives each test a process group, so that a signal ends all of it.
set -m

limit=10m # Of one run of a test.
patches=test/mutations
work=
job=

# cleanup ends the running test and removes the copy.
cleanup() {
  local status=$? signal tries
  trap - EXIT
  trap '' INT TERM HUP
  [[ -z $job ]] || disown "$job"
  # Interrupted, go removes its temporary files.
  for signal in INT KILL; do
    for ((tries = 50; tries > 0; tries--)); do
      [[ -n $job ]] && kill -0 -- "-$job" 2>/dev/null || break 2
      ((tries < 50)) || kill -"$signal" -- "-$job" 2>/dev/null || true
      sleep 0.1
    done
  done
  if [[ -n $work ]]; then
    git worktree remove --force --force "$work/tree" 2>/dev/null || true
    rm -rf "$work"
  fi
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# run runs a command in the copy and writes its output to a file. What a broken promise leaves running ends with its namespace; bash is the
# first process there, and reaps the others. A signal ends the wait at once.
run() {
  local status=0
  (cd "$work/tree" && exec unshare --pid --fork --kill-child --mount-proc bash -c '"$@"; exit' bash "$@") >"$work/log" 2>&1 </dev/null &
  job=$!
  wait "$job" || status=$?
  job=
  return "$status"
}

# header NAME FIELD prints a line of a patch's header.
header() { sed -n "/^diff /q; s/^$2: //p" "$patches/$1.patch"; }

# go_test PACKAGE TEST... Vet is off: a promise has to be kept by a test.
go_test() {
  local package=$1 names
  shift
  names=$(IFS='|' && printf '%s' "$*")
  run go test -json -vet=off -timeout="$limit" -run "^($names)\$" "$package"
}

# has ACTION TEST says whether go_test's output has an event of a test.
has() { grep -qE "\"Action\":\"$1\",.*\"Test\":\"$2\"[,}]" "$work/log"; }

# show prints the text of go_test's output, for an error.
show() { sed -nE 's/^\{.*"Output":"(.*)"\}$/\1/p; t; /^\{/!p' "$work/log" | sed 's/\\n$//; s/\\"/"/g; s/\\t/  /g' | tail -n "${1:-20}" >&2; }

# shown_by NAME sets package and test to those that a patch names.
shown_by() {
  read -r package test <<<"$(header "$1" 'Shown by')"
  [[ $package == ./* && $test == Test* ]] || die "$patches/$1.patch needs a line like 'Shown by: ./internal/guards TestName' before the diff"
}

# check_patches fails when a patch doesn't apply.
check_patches() {
  local name
  for name in "${names[@]}"; do
    [[ -e $patches/$name.patch ]] || die "there is no patch $patches/$name.patch"
    [[ -n $(header "$name" Promise) ]] || die "$patches/$name.patch needs a line 'Promise: one sentence' before the diff"
    git -C "$work/tree" apply --check "$PWD/$patches/$name.patch" ||
      die "$patches/$name.patch doesn't apply to HEAD any more: make its change again by hand, replace what follows its header with the output of 'git diff', and commit it"
  done
}

# check_tests fails when a named test doesn't pass without a patch: it failed, was skipped, or isn't there.
check_tests() {
  local name package test
  local -A tests=()
  for name in "${names[@]}"; do
    shown_by "$name"
    tests[$package]+=" $test"
  done
  for package in $(printf '%s\n' "${!tests[@]}" | sort); do
    say "without a patch: $package"
    # Sorted, each once: so that the next run finds the result in Go's cache.
    mapfile -t list < <(tr ' ' '\n' <<<"${tests[$package]}" | sed '/^$/d' | sort -u)
    go_test "$package" "${list[@]}" || { show && die "the tests of $package fail without a patch"; }
    for test in "${list[@]}"; do
      has pass "$test" || { show && die "$package has no $test that passes: it was skipped, or isn't there"; }
    done
  done
}

# try NAME applies a patch, and sets result to what became of it.
try() {
  local package test patch=$PWD/$patches/$1.patch
  local -a changed
  shown_by "$1"
  git -C "$work/tree" apply "$patch"
  mapfile -t changed < <(git -C "$work/tree" diff --name-only -- '*.go' | xargs -r -n1 dirname | sort -u | sed 's|^|./|')
  if [[ ${#changed[@]} != 0 ]] && ! run go build "${changed[@]}"; then
    result='ERROR: it does not compile'
    show
  elif go_test "$package" "$test"; then
    result=SURVIVED
  elif grep -qF 'panic: test timed out' "$work/log"; then
    result="ERROR: $test isn't over after $limit"
  elif has fail "$test"; then
    result=killed
  else
    result="ERROR: $test didn't fail, but its package did"
    show
  fi
  git -C "$work/tree" checkout --quiet -- .
}

names=("${@%.patch}")
[[ $# != 0 ]] || mapfile -t names < <(cd "$patches" && printf '%s\n' *.patch | sed 's/\.patch$//')

work=$(mktemp -d --tmpdir toolcall-mutations.XXXXXX)
chmod 755 "$work" # Some tests run programs as another user.
git worktree add --quiet --detach "$work/tree" HEAD
check_patches
# Some tests start an API server.
[[ -n ${KUBEBUILDER_ASSETS:-} ]] || KUBEBUILDER_ASSETS=$(cluster assets)
export KUBEBUILDER_ASSETS
check_tests

killed=0
for name in "${names[@]}"; do
  began=$SECONDS
  try "$name"
  [[ $result != killed ]] || killed=$((killed + 1))
  printf '%-8s %4d s  %-26s %s\n' "${result%%:*}" $((SECONDS - began)) "$name" "$(header "$name" Promise)"
  [[ $result != ERROR:* ]] || say "$name: ${result#ERROR: }"
done
printf '%d of %d broken promises were noticed.\n' "$killed" "${#names[@]}"
((killed == ${#names[@]}))
