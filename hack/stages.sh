# Runs commands as stages. Source it after lib.sh.
#
# Each stage writes a log to bin/test-logs, and while it runs its output is shown. Stages run one after the other, or beside others
# in a `lane`. A signal ends all running stages with all that they started, then calls `cleanup`, if the script defines it. A script
# ends with a table of its stages, the names of the tests that failed, and the output of the first that failed.
#
# A script sets `plan` to the names of its stages, in order. Each stage's first line says how long it took the last time, and which
# stages are left.

# Job control gives each background job a process group.
set -m

logs=$PWD/bin/test-logs
rm -rf "$logs"
mkdir -p "$logs"
# done lists the stages that ended: name, result, seconds, and the share of the processors' time that was used meanwhile.
done=$logs/.stages
: >"$done"
# The seconds of each stage's last good run on this machine.
times=${TOOLCALL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/toolcall-operator}/stage-times
plan=()
# The process groups that run: that of the stage, and those of lanes.
stage_pid=
lane_pids=()

# duration SECONDS prints minutes and seconds.
duration() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

last_time() { awk -v name="$1" '$1 == name { print $2 }' "$times" 2>/dev/null || true; }

# selected says whether a stage is to run: all are without STAGES.
selected() { [[ -z ${STAGES:-} || " $STAGES " == *" $1 "* ]]; }

# left prints the stages that have not ended, except the one that starts.
left() {
  local name last
  for name in "${plan[@]}"; do
    [[ $name != "$1" ]] && selected "$name" && ! grep -q "^$name " "$done" || continue
    last=$(last_time "$name")
    printf ' %s%s' "$name" "${last:+ $(duration "$last")}"
  done
}

announce() {
  local last rest
  last=$(last_time "$1")
  rest=$(left "$1")
  say "=== $1${last:+ (last time $(duration "$last"))}${rest:+; left:$rest}"
}

# processor_time prints the busy and the whole time of all processors since the machine started, in ticks.
processor_time() { awk '/^cpu / { idle = $5 + $6; for (i = 2; i <= 9; i++) all += $i; print all - idle, all }' /proc/stat; }

# ended NAME STATUS BEGAN BUSY ALL notes the end of a stage.
ended() {
  local name=$1 status=$2 seconds=$((SECONDS - $3)) busy all result=ok
  read -r busy all < <(processor_time)
  busy=$((100 * (busy - $4) / (all - $5 + 1)))
  if ((status == 0)); then
    mkdir -p "${times%/*}"
    { awk -v name="$name" '$1 != name' "$times" 2>/dev/null || true; echo "$name $seconds"; } >"$times.$BASHPID"
    mv "$times.$BASHPID" "$times"
  else
    result=FAILED
  fi
  echo "$name $result $seconds $busy" >>"$done"
  say "=== $name: $result after $(duration "$seconds"), processors $busy % busy"
}

# stage NAME COMMAND... runs a command, and shows its output while it is written to the log. Of a script with STAGES, a list of names,
# only these stages run.
stage() {
  local name=$1 status=0 began=$SECONDS shown processors
  shift
  selected "$name" || return 0
  announce "$name"
  read -ra processors < <(processor_time)
  : >"$logs/$name.log"
  echo "$began" >"$logs/.running-$name"
  "$@" >>"$logs/$name.log" 2>&1 </dev/null &
  stage_pid=$!
  tail -f -n +1 -s 0.2 --pid="$stage_pid" "$logs/$name.log" &
  shown=$!
  # A signal ends this wait at once.
  wait "$stage_pid" || status=$?
  wait "$shown" || true
  stage_pid=
  rm "$logs/.running-$name"
  ended "$name" "$status" "$began" "${processors[@]}"
  return "$status"
}

# lane FUNCTION runs a function, with its stages, beside what follows; await_lanes waits for all. What runs in a lane yields to what
# doesn't: tests on the cluster mostly wait, and the others use the processors meanwhile.
lane() {
  { renice -n 5 "$BASHPID" >/dev/null; "$@" || true; } &
  lane_pids+=("$!")
}

await_lanes() {
  local pid
  for pid in "${lane_pids[@]}"; do wait "$pid" || true; done
  lane_pids=()
}

# tests NAME MODULE FORMAT ARGUMENT... runs go test in a module's folder as a stage; FORMAT is one of gotestsum's. Flags have their values
# after "=".
tests() {
  [[ " $* " != *" -race "* ]] || local -x CGO_ENABLED=1
  stage "$1" go_test "$@"
}

# go_test runs the tests of a stage. In `make test`, it runs a few that fail once more, each by itself: on a busy machine one test in
# thousands fails, and a fault fails again.
go_test() {
  local name=$1 format=$3 argument flags=() packages=() again=()
  cd "$2" || return
  shift 3
  for argument in "$@"; do
    if [[ $argument == -* ]]; then flags+=("$argument"); else packages+=("$argument"); fi
  done
  [[ ${mode:-} != default ]] ||
    again=(--rerun-fails=1 --rerun-fails-run-root-test --rerun-fails-max-failures=3 --rerun-fails-report="$logs/$name.again")
  # Bash has what it starts in the background of a lane ignore interrupts.
  env --default-signal=INT "$OLDPWD/bin/gotestsum" --format="$format" --format-hide-empty-pkg --hide-summary=skipped --jsonfile="$logs/$name.json" \
    "${again[@]}" --packages="${packages[*]}" -- "${flags[@]}" || return
  # Run once more, a package that failed without a failed test, as where a goroutine is left, passes without tests. So does one whose test
  # binary died, without those behind: a test that never ended says so.
  awk -F'"' '
    $14 == "Test" && $8 == "run" { open[$12 " " $16]++ }
    $14 == "Test" && $8 ~ /^(pass|fail|skip)$/ { open[$12 " " $16]-- }
    $8 == "fail" { if ($14 == "Test") tests[$12]; else packages[$12] }
    END {
      for (name in packages) if (!(name in tests)) { print "failed without a failed test: " name; failed = 1 }
      for (name in open) if (open[name] > 0) { print "began and never ended: " name; failed = 1 }
      exit failed
    }' "$logs/$name.json"
}

# runs says whether a process of the group runs; ended ones stay until they are waited for.
runs() { ps -eo pgid=,stat= | awk -v group="$1" '$1 == group && $2 !~ /^Z/ { found = 1 } END { exit !found }'; }

# stop_group interrupts a process group, so that gotestsum still prints its summary. What stays is killed.
stop_group() {
  local signal until
  disown "$1" 2>/dev/null || true
  for signal in INT TERM KILL; do
    kill -"$signal" -- "-$1" 2>/dev/null || return 0
    until=$((SECONDS + 4))
    while ((SECONDS < until)); do
      runs "$1" || return 0
      sleep 0.2
    done
  done
}

# tests_of prints what gotestsum counted in a stage; nothing for other stages.
tests_of() { sed -n 's/^DONE \(.*\) in [0-9.]*s$/\1/p' "$logs/$1.log" | tail -n 1; }

summary() {
  local name result seconds busy failed again
  printf '\n%-22s %-8s %7s %5s  %s\n' STAGE RESULT TIME BUSY TESTS
  while read -r name result seconds busy; do
    printf '%-22s %-8s %7s %5s  %s\n' "$name" "$result" "$(duration "$seconds")" "$busy%" "$(tests_of "$name")"
  done <"$done"
  printf '%-22s %-8s %7s\n' whole '' "$(duration "$SECONDS")"
  if compgen -G "$logs/*.json" >/dev/null; then
    # The events of all stages as one run; the time would be that of reading them.
    bin/gotestsum --format=none --hide-summary=skipped,output --raw-command -- cat "$logs"/*.json | sed 's/^\(DONE .*\) in [0-9.]*s$/\1/' || true
  fi
  # Without the parts of tests.
  again=$(sed -n '/\.[A-Z][A-Za-z0-9_]*\//d; s/: 2 runs, 1 failures$//p' "$logs"/*.again 2>/dev/null || true)
  [[ -z $again ]] || printf 'Passed when run once more:\n%s\n' "$again"
  printf 'The logs are in %s.\n' "${logs#"$PWD"/}"
  failed=$(awk '$2 == "FAILED" { print $1; exit }' "$done")
  [[ -n $failed ]] || return 0
  printf '\nThe first failure, in the stage %s:\n' "$failed"
  if [[ ! -s $logs/$failed.json ]] || ! go -C hack run ./firstfailure "$logs/$failed.json"; then
    tail -n 40 "$logs/$failed.log"
  fi
}

finish() {
  local status=$? pid running
  trap - EXIT INT TERM HUP
  for pid in $stage_pid "${lane_pids[@]}"; do stop_group "$pid" & done
  wait
  for running in "$logs"/.running-*; do
    [[ ! -e $running ]] || echo "${running##*/.running-} stopped $((SECONDS - $(<"$running"))) -" >>"$done"
  done
  ! declare -F cleanup >/dev/null || cleanup || true
  ! grep -q ' FAILED ' "$done" || [[ $status != 0 ]] || status=1
  summary
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
