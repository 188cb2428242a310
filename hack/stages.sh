# Runs commands as stages. Source it after lib.sh.
#
# Each stage runs in a process group of its own and writes a log to bin/test-logs. A signal ends the running stage with
# all that it started, then calls `cleanup`, if the script defines it. A script ends with a table of its stages and the
# names of the tests that failed.

# Job control gives each background job a process group.
set -m

logs=$PWD/bin/test-logs
rm -rf "$logs"
mkdir -p "$logs"
rows=() # Of the table: name, result, seconds.
failed=
# The running stage: its process group, the process that shows its log, and when it began.
stage_pid=
shown_pid=
began=

# stage NAME COMMAND... runs a command, and shows its output while it is written to the log.
stage() {
  local name=$1 status=0
  shift
  began=$SECONDS
  say "=== $name"
  : >"$logs/$name.log"
  "$@" >>"$logs/$name.log" 2>&1 </dev/null &
  stage_pid=$!
  tail -f -n +1 -s 0.2 --pid="$stage_pid" "$logs/$name.log" &
  shown_pid=$!
  rows+=("$name")
  # A signal ends this wait at once.
  wait "$stage_pid" || status=$?
  end_stage "$( ((status)) && echo FAILED || echo ok)"
  ((status == 0)) || failed=yes
  return "$status"
}

end_stage() {
  stage_pid=
  wait "$shown_pid" || true
  rows[-1]+=" $1 $((SECONDS - began))"
}

# tests NAME MODULE FORMAT ARGUMENT... runs go test in a module's folder as a stage; FORMAT is one of gotestsum's.
tests() {
  local name=$1 module=$2 format=$3
  shift 3
  [[ " $* " != *" -race "* ]] || local -x CGO_ENABLED=1
  stage "$name" bin/gotestsum --format="$format" --format-hide-empty-pkg --hide-summary=skipped --jsonfile="$logs/$name.json" \
    --raw-command -- go -C "$module" test -json "$@"
}

# stop_stage interrupts the running stage, so that gotestsum still prints its summary. What stays is killed.
stop_stage() {
  local signal tries
  disown "$stage_pid"
  for signal in INT TERM KILL; do
    kill -"$signal" -- "-$stage_pid" 2>/dev/null || break
    for ((tries = 50; tries > 0; tries--)); do
      kill -0 -- "-$stage_pid" 2>/dev/null || break
      sleep 0.1
    done
  done
  end_stage stopped
}

# tests_of prints what gotestsum counted in a stage; nothing for other stages.
tests_of() { sed -n 's/^DONE \(.*\) in [0-9.]*s$/\1/p' "$logs/$1.log" | tail -n 1; }

summary() {
  local row name result seconds
  printf '\n%-20s %-8s %8s  %s\n' STAGE RESULT SECONDS TESTS
  for row in "${rows[@]}"; do
    read -r name result seconds <<<"$row"
    printf '%-20s %-8s %8s  %s\n' "$name" "$result" "$seconds" "$(tests_of "$name")"
  done
  if compgen -G "$logs/*.json" >/dev/null; then
    # The events of all stages as one run; the time would be that of reading them.
    bin/gotestsum --format=none --hide-summary=skipped,output --raw-command -- cat "$logs"/*.json | sed 's/^\(DONE .*\) in [0-9.]*s$/\1/' || true
  fi
  printf 'The logs are in %s.\n' "${logs#"$PWD"/}"
}

finish() {
  local status=$?
  trap - EXIT INT TERM HUP
  [[ -z $stage_pid ]] || stop_stage
  ! declare -F cleanup >/dev/null || cleanup || true
  summary
  [[ -z $failed || $status != 0 ]] || status=1
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
