package runner

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/testing/ways"
)

func BenchmarkTrueThroughRun(b *testing.B) {
	for name, cmd := range map[string]Command{"plain": program("/bin/true"), "offline": offlineTrue()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if o := Run(b.Context(), cmd); o.ExitCode == nil || *o.ExitCode != 0 {
					b.Fatal(describe(o))
				}
			}
		})
	}
}

// BenchmarkTrueAsTheFirstProcess is what a pod pays.
func BenchmarkTrueAsTheFirstProcess(b *testing.B) {
	for _, network := range []string{"online", "offline"} {
		b.Run(network, func(b *testing.B) {
			argv := append(asInit(b), publicSelf(b), strconv.Itoa(b.N), network)
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Env = []string{helperVariable + "=loop", "PATH=" + testPath}
			out, err := cmd.Output()
			if err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			total, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(total/float64(b.N), "ns/op")
		})
	}
}

func offlineTrue() Command {
	cmd := program("/bin/true")
	cmd.DenyNetwork = true
	return cmd
}

// benchRules are what a policy of a coding agent lists.
func benchRules() *rules.Rules {
	return &rules.Rules{
		WritePaths: []string{"/tmp"},
		Programs: &rules.Programs{Own: "bash", Allowed: []string{
			"true", "bash", "sh", "ls", "cat", "cp", "mv", "rm", "mkdir", "grep", "sed", "awk", "find", "xargs", "head", "tail", "sort", "uniq",
			"wc", "tr", "cut", "diff", "git", "python3", "make", "gcc", "tar", "gzip", "env", "echo", "test", "touch", "chmod", "date", "id",
		}},
	}
}

// durations are measurements of one variant, in turn with those of the others: load hits all alike.
type durations []time.Duration

// report reports the median and the least in microseconds.
func (d durations) report(b *testing.B, name string) {
	slices.Sort(d)
	b.ReportMetric(float64(d[len(d)/2].Microseconds()), "p50-µs-"+name)
	b.ReportMetric(float64(d[0].Microseconds()), "min-µs-"+name)
}

// BenchmarkTrueInside is the start to the end of a command: without rules, with rules and a stage that was started ahead,
// and with rules and no stage. The number of Landlock rules is reported.
func BenchmarkTrueInside(b *testing.B) {
	plain, held := program("/bin/true"), program("/bin/true")
	held.Rules = benchRules()
	Prepare()
	discardStage()
	measure := func(cmd Command) time.Duration {
		began := time.Now()
		o := Run(b.Context(), cmd)
		took := time.Since(began)
		if o.Reason != result.Completed {
			b.Fatal(describe(o))
		}
		return took
	}
	var without, ahead, late durations
	for b.Loop() {
		without = append(without, measure(plain))
		Prepare()
		awaitStage(b, ready.PID)
		ahead = append(ahead, measure(held))
		late = append(late, measure(held))
	}
	without.report(b, "without-rules")
	ahead.report(b, "stage-ahead")
	late.report(b, "no-stage")
}

// awaitStage waits until a stage waits for its command.
func awaitStage(b *testing.B, pid int) {
	for {
		call, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/syscall")
		if err != nil {
			b.Fatal(err)
		}
		if strings.HasPrefix(string(call), strconv.Itoa(unix.SYS_RECVMSG)+" ") {
			return
		}
	}
}

// inEachWay calls a function for each kind of node whose way differs, with what such a node gives in force.
func inEachWay(b *testing.B, r *rules.Rules, call func(way string)) {
	if os.Getuid() == 0 {
		b.Skip("without Landlock root could write to every program: run it as another user")
	}
	here := *support
	defer func() { support = &here }()
	for node := range ways.Of(here, r) {
		given := node.Gives(here)
		support = &given
		call(strings.ReplaceAll(node.Name, " ", "-"))
	}
}

// BenchmarkExecInside is one of a hundred executions in a shell's loop.
func BenchmarkExecInside(b *testing.B) {
	var without, with durations
	for b.Loop() {
		without, with = append(without, executions(b, nil)), append(with, executions(b, benchRules()))
	}
	without.report(b, "without-rules")
	with.report(b, "with-rules")
}

func executions(b *testing.B, r *rules.Rules) time.Duration {
	const times = 100
	cmd := bash("for ((i = 0; i < " + strconv.Itoa(times) + "; i++)); do /bin/true; done")
	cmd.Rules = r
	o := Run(b.Context(), cmd)
	if o.Reason != result.Completed {
		b.Fatal(describe(o))
	}
	return o.CompletionTime.Sub(o.StartTime) / times
}

// BenchmarkExecInEachWay is the same under a list, in each way.
func BenchmarkExecInEachWay(b *testing.B) {
	list := benchRules()
	list.WritePaths = nil
	Prepare()
	Discard()
	took := map[string]durations{}
	for b.Loop() {
		took["without-rules"] = append(took["without-rules"], executions(b, nil))
		inEachWay(b, list, func(way string) { took[way] = append(took[way], executions(b, list)) })
	}
	for name, d := range took {
		d.report(b, name)
	}
}

// BenchmarkTrueInEachWay is the start to the end of a command under a list, with a stage that was started ahead.
func BenchmarkTrueInEachWay(b *testing.B) {
	cmd := program("/bin/true")
	cmd.Rules = benchRules()
	cmd.Rules.WritePaths = nil
	Prepare()
	took := map[string]durations{}
	for b.Loop() {
		inEachWay(b, cmd.Rules, func(way string) {
			Prepare()
			awaitStage(b, ready.PID)
			began := time.Now()
			if o := Run(b.Context(), cmd); o.Reason != result.Completed {
				b.Fatal(describe(o))
			}
			took[way] = append(took[way], time.Since(began))
		})
	}
	for name, d := range took {
		d.report(b, name)
	}
}

// BenchmarkTrueThroughExec is what the standard library takes for a process whose output is captured.
func BenchmarkTrueThroughExec(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		cmd := exec.Command("/bin/true")
		cmd.Env = []string{}
		if _, err := cmd.Output(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCaptureOf100MB(b *testing.B) {
	const size = 100 << 20
	for name, live := range map[string]io.Writer{"alone": nil, "with a live copy": io.Discard} {
		b.Run(name, func(b *testing.B) {
			cmd := helperCommand(b, "flood", strconv.Itoa(size))
			cmd.Stdout = live
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				if o := Run(b.Context(), cmd); o.Stdout.Bytes != size {
					b.Fatal(describe(o))
				}
			}
		})
	}
}

func BenchmarkCaptureWrite(b *testing.B) {
	chunk := make([]byte, chunkSize)
	for i := range chunk {
		chunk[i] = byte('a' + i%26)
	}
	c := newCapture(kept.Limits{Memory: 64 << 10})
	b.SetBytes(chunkSize)
	for b.Loop() {
		c.write(chunk)
	}
}
