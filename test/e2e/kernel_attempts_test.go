package e2e

import (
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/attempts"
	"toolcall.dev/operator/internal/testing/full"
)

// attemptsDriver runs many commands in one call, and prints which of them ran something that left a trace.
//
//go:embed testdata/attempts.py
var attemptsDriver string

// attemptsOfCall is how many commands one call tries.
const attemptsOfCall = 80

// podAttempt is a command to run in a pod. Its programs are found in the pod's own PATH, or before that among marks.
type podAttempt struct {
	Argv  []string          `json:"argv"`
	Env   map[string]string `json:"env,omitempty"`
	Stdin string            `json:"stdin,omitempty"`
	Marks bool              `json:"marks"`
}

// podAttempts is what the driver is given.
type podAttempts struct {
	Dir      string       `json:"dir"`
	Names    []string     `json:"names"`
	Mark     []byte       `json:"mark"`
	Record   string       `json:"record"`
	Token    string       `json:"token"`
	Attempts []podAttempt `json:"attempts"`
}

func newPodAttempts(t *testing.T) *podAttempts {
	t.Helper()
	// In the workspace, where an agent would put what it brings along.
	a := &podAttempts{
		Dir: "/workspace/programs", Names: append([]string{"copyable", "editor", "pager", "zip", "wget", "flock"}, attempts.Names...),
		Record: "/workspace/." + rand.Text(), Token: rand.Text(),
	}
	program := filepath.Join(t.TempDir(), "mark")
	must(t, attempts.Mark{Record: a.Record, Token: a.Token}.Build(program))
	var err error
	a.Mark, err = os.ReadFile(program)
	must(t, err)
	a.Attempts = append(bypassAttempts(t), a.generated(200)...)
	if !full.Run() {
		// internal/runner's tests try all of them without a pod.
		var some []podAttempt
		for i := 0; i < len(a.Attempts); i += 5 {
			some = append(some, a.Attempts[i])
		}
		a.Attempts = some
	}
	return a
}

// generated are scripts against the marks and against the image's own programs.
func (a *podAttempts) generated(n int) []podAttempt {
	const loader = "/lib64/ld-linux-x86-64.so.2"
	marks := attempts.World{Dir: a.Dir, Copyable: a.Dir + "/copyable", Loader: loader}
	image := attempts.World{Dir: "/usr/bin", Copyable: a.Dir + "/copyable", Loader: loader}
	var all []podAttempt
	for i, picks := range attempts.Picks(3, n) {
		world := marks
		if i%3 == 2 {
			world = image
		}
		all = append(all, podAttempt{Argv: []string{"bash", "-c", world.Script(picks)}, Marks: i%3 != 2})
	}
	return all
}

// bypassAttempts are the inputs that once got through, past no guard here. Each runs with the image's programs and with
// the marks.
func bypassAttempts(t *testing.T) []podAttempt {
	t.Helper()
	vectors := struct {
		Cases []struct{ Spec v1alpha1.ToolCallSpec }
	}{}
	readVectors(t, "bypass.json", &vectors)
	var all []podAttempt
	for _, c := range vectors.Cases {
		a := podAttempt{Stdin: c.Spec.Stdin, Env: map[string]string{}}
		for _, v := range c.Spec.Env {
			a.Env[v.Name] = v.Value
		}
		switch {
		case c.Spec.Shell != nil:
			a.Argv = []string{"bash", "-c", c.Spec.Shell.Command}
		case c.Spec.Structured != nil:
			a.Argv = append([]string{c.Spec.Structured.Binary}, c.Spec.Structured.Args...)
		default:
			continue // about modules of a snippet
		}
		all = append(all, a)
		a.Marks = true
		all = append(all, a)
	}
	return all
}

// run lets one call try a part of the attempts, and returns those that ran something which isn't listed, with what it
// left.
func (a *podAttempts) run(t *testing.T, sp *space, part []podAttempt) (*v1alpha1.ToolCall, map[int]string) {
	t.Helper()
	given := *a
	given.Attempts = part
	stdin, err := json.Marshal(given)
	must(t, err)
	spec := within(3*attemptsOfCall, code("python", attemptsDriver)) // each may take its second, and more to start
	spec.Stdin = string(stdin)
	call := sp.run(t, spec)
	said := struct {
		Tried int            `json:"tried"`
		Ran   map[int]string `json:"ran"`
	}{}
	if err := json.Unmarshal([]byte(call.Status.Stdout), &said); err != nil || said.Tried != len(part) {
		t.Fatalf("tried %d of %d: %v: %s: %s\n%s", said.Tried, len(part), err, call.Status.Reason, call.Status.Message, clip(call.Status.Output, 2000))
	}
	return call, said.Ran
}

// What ran is told by the programs themselves: no status is asked, and no guard is in the way. The same commands without
// a list show that they try something.
func TestScriptsRunNothingUnlistedInThePod(t *testing.T) {
	t.Parallel()
	all := newPodAttempts(t)
	held := newSpace(t, listed(attempts.Listed...))
	free := newSpace(t, listed(), func(p *v1alpha1.ExecutionPolicySpec) { p.Shell.Commands, p.Binaries = "", nil })
	var mu sync.Mutex
	var traces int
	t.Run("each", func(t *testing.T) {
		for part := range slices.Chunk(all.Attempts, attemptsOfCall) {
			t.Run("held", func(t *testing.T) {
				t.Parallel()
				call, ran := all.run(t, held, part)
				for i, trace := range ran {
					t.Errorf("an unlisted program ran: %s\n%s\n%v", trace, strings.Join(part[i].Argv, " "), part[i].Env)
				}
				all.checkStatus(t, call)
			})
			t.Run("free", func(t *testing.T) {
				t.Parallel()
				call, ran := all.run(t, free, part)
				if call.Status.Isolation != nil && call.Status.Isolation.Programs {
					t.Errorf("the list is in force: %+v", call.Status.Isolation)
				}
				mu.Lock()
				defer mu.Unlock()
				traces += len(ran)
			})
		}
	})
	t.Logf("of %d commands %d run unlisted programs without a list", len(all.Attempts), traces)
	if traces < len(all.Attempts)/3 {
		t.Errorf("only %d of %d commands try anything", traces, len(all.Attempts))
	}
}

// checkStatus compares what the status says with what is known to be listed.
func (a *podAttempts) checkStatus(t *testing.T, call *v1alpha1.ToolCall) {
	t.Helper()
	if i := call.Status.Isolation; i == nil || !i.Programs {
		t.Errorf("isolation %+v", i)
	}
	if len(call.Status.Refused) == 0 || ptr.Deref(call.Status.ExitCode, -1) != 0 {
		t.Errorf("refused %+v, %s: %s", call.Status.Refused, call.Status.Reason, call.Status.Message)
	}
	for _, program := range executed(call) {
		if !slices.Contains(attempts.Listed, program) && !strings.HasPrefix(program, "python3") && !isHelper(program, attempts.Listed) {
			t.Errorf("%s was executed", program)
		}
	}
}
