package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// attacker is the attacking program, a directory of its own, and the loader that it was built for.
type attacker struct {
	program, work, loader string
	// bin holds the program as busybox, with the names one and two.
	bin string
	// prefix starts the supervisor, unhidden leaves it open to processes of its user.
	prefix   []string
	unhidden bool
}

var buildAttack = sync.OnceValues(func() (string, error) {
	self, err := copySelf() // its directory is removed at the end
	if err != nil {
		return "", err
	}
	program := filepath.Join(filepath.Dir(self), "attack")
	out, err := exec.Command("gcc", "-O1", "-w", "-pthread", "-o", program, "testdata/attack.c", "testdata/races.c").CombinedOutput()
	if err != nil {
		return string(out), err
	}
	return program, nil
})

func newAttacker(t testing.TB) *attacker {
	t.Helper()
	ownRules(t)
	needs(t, "gcc")
	program, err := buildAttack()
	if err != nil {
		t.Fatalf("%v: %s", err, program)
	}
	bin, work := worlds(t)
	code, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	write(t, work, "evil", string(code), 0o755)
	write(t, bin, "busybox", string(code), 0o755)
	for _, name := range []string{"one", "two"} {
		if err := os.Symlink("busybox", filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	loaders, _ := filepath.Glob("/lib*/ld-linux-*.so.*")
	if len(loaders) == 0 {
		t.Skip("there is no loader of the usual name")
	}
	return &attacker{program: program, work: work, loader: loaders[0], bin: bin}
}

// run lets an unprivileged supervisor run an attack, with the attacker alone listed.
func (a *attacker) run(t testing.TB, r *rules.Rules, args ...string) result.Outcome {
	t.Helper()
	argv := slices.Insert(append([]string{a.program}, args...), 2, a.work, a.program, a.loader)
	s := supervision{Argv: argv, Dir: "/", NoNewPrivs: true, Harden: !a.unhidden, Rules: r}
	return superviseApart(t, s, nobody(t), a.prefix...).Outcome
}

// prepare arranges what an attack needs.
func (a *attacker) prepare(t testing.TB, args []string) *attacker {
	switch args[0] {
	case "names":
		args[2] = a.bin
	case "inherited":
		// The supervisor has an unlisted program and its directory open, and doesn't hide.
		a.prefix, a.unhidden = []string{"bash", "-c", `exec 7< "$0/evil" 8< "$0" "$@"`, a.work}, true
	}
	return a
}

func (a *attacker) rules() *rules.Rules {
	return &rules.Rules{
		Policy: "agents", WritePaths: []string{a.work}, Programs: &rules.Programs{Allowed: []string{a.program, a.bin + "/one"}, AllowMultiCall: true},
	}
}

// marks are what unlisted programs left behind.
func (a *attacker) marks(t testing.TB) []string {
	t.Helper()
	marks, err := filepath.Glob(filepath.Join(a.work, "mark-*"))
	if err != nil {
		t.Fatal(err)
	}
	return marks
}

func TestNoAttackGetsAnUnlistedProgramToRun(t *testing.T) {
	for _, c := range []struct {
		args []string
		// refused are rules of which at least one program must have been refused.
		refused []string
	}{
		{[]string{"files"}, []string{result.RuleNotListed, result.RuleUnnamed}},
		{[]string{"loaders"}, []string{result.RuleLoader, result.RuleNotListed}},
		{[]string{"scripts"}, []string{result.RuleNotListed}},
		{[]string{"memory"}, []string{result.RuleLoader, result.RuleUnnamed}},
		{[]string{"descriptors"}, []string{result.RuleNotListed}},
		{[]string{"children"}, []string{result.RuleNotListed, result.RuleLoader}},
		{[]string{"processes"}, nil},
		{[]string{"kernel"}, nil},
		{[]string{"threads"}, []string{result.RuleNotListed}},
		{[]string{"many", "200"}, []string{result.RuleNotListed}},
		{[]string{"race-evil", "300"}, []string{result.RuleNotListed}},
		{[]string{"race-loader", "300"}, []string{result.RuleLoader}},
		{[]string{"race-shared", "300"}, []string{result.RuleLoader}},
		{[]string{"leaders", "300"}, []string{result.RuleLoader, result.RuleNotListed}},
		{[]string{"names", "300", "bin"}, []string{result.RuleName}},
		{[]string{"inherited"}, nil},
	} {
		t.Run(c.args[0], func(t *testing.T) {
			a := newAttacker(t)
			o := a.prepare(t, c.args).run(t, a.rules(), c.args...)
			want{reason: result.Completed, exit: result.Exit(0), stdout: new("done\n")}.check(t, o)
			if marks := a.marks(t); len(marks) > 0 {
				t.Errorf("unlisted programs ran: %q", marks)
			}
			for _, rule := range c.refused {
				if !slices.ContainsFunc(o.Refused, func(p result.Program) bool { return p.Rule == rule }) {
					t.Errorf("nothing was refused as %s: %+v", rule, o.Refused)
				}
			}
			if slices.ContainsFunc(o.Refused, func(p result.Program) bool { return p.Rule == result.RuleUnreadable }) {
				t.Errorf("a program that may be looked at was refused: %+v", o.Refused)
			}
			for _, p := range o.Executed {
				if p.Path != a.program && p.Path != filepath.Join(a.bin, "one") {
					t.Errorf("%s was executed", p.Path)
				}
			}
			t.Logf("executed %+v, refused %+v and %d more", o.Executed, o.Refused, o.MoreRefused)
		})
	}
}

// The attacks work where nothing holds them: otherwise the test above would show nothing.
func TestTheAttacksWorkWithoutRules(t *testing.T) {
	for _, args := range [][]string{
		{"files"}, {"loaders"}, {"scripts"}, {"memory"}, {"descriptors"}, {"children"}, {"threads"}, {"many", "10"},
		{"race-evil", "50"}, {"race-loader", "50"}, {"race-shared", "50"}, {"leaders", "50"}, {"names", "50", "bin"}, {"inherited"},
	} {
		a := newAttacker(t)
		o := a.prepare(t, args).run(t, nil, args...)
		// A race can be lost many times in a row where the machine has other things to do.
		for try := 1; len(a.marks(t)) == 0 && try < 20; try++ {
			o = a.run(t, nil, args...)
		}
		if len(a.marks(t)) == 0 {
			t.Errorf("%s: no unlisted program ran: %s", args, describe(o))
		}
	}
	a := newAttacker(t)
	if o := a.run(t, nil, "kernel"); !strings.Contains(text(o.Stdout), "escaped") {
		t.Errorf("nothing escaped: %s", describe(o))
	}
}
