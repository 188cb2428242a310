package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestCounting(t *testing.T) {
	t.Parallel()
	const begun = `{"Action":"run","Package":"p","Test":"TestA"}` + "\n"
	for name, test := range map[string]struct {
		input string
		want  Totals
		shows []string
		hides string
	}{
		"a test that passes is quiet": {
			begun + `{"Action":"output","Package":"p","Test":"TestA","Output":"noise\n"}` + "\n" +
				`{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"p"}` + "\n",
			Totals{Passed: 1}, nil, "noise",
		},
		"a test that fails shows what it printed": {
			begun + `{"Action":"output","Package":"p","Test":"TestA","Output":"why\n"}` + "\n" +
				`{"Action":"fail","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n",
			Totals{Failed: 1}, []string{"FAIL: p TestA", "why"}, "CUT OFF",
		},
		"a skipped test counts as that": {
			begun + `{"Action":"skip","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"skip","Package":"p"}` + "\n",
			Totals{Skipped: 1}, nil, "FAIL",
		},
		"a test that a panic cut off has failed": {
			begun + `{"Action":"output","Package":"p","Test":"TestA","Output":"panic: x\n"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n",
			Totals{Failed: 1}, []string{"CUT OFF: p TestA", "panic: x"}, "--- FAIL",
		},
		"a package that fails by itself counts once": {
			begun + `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" +
				`{"Action":"output","Package":"p","Output":"left something\n"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n",
			Totals{Passed: 1, Failed: 1}, []string{"left something"}, "CUT OFF",
		},
		"a package that doesn't compile says why": {
			`{"Action":"build-output","ImportPath":"p","Output":"undefined: x\n"}` + "\n" +
				`{"Action":"build-fail","ImportPath":"p"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n",
			Totals{Failed: 1}, []string{"undefined: x"}, "CUT OFF",
		},
		"what isn't an event is passed on": {"go: downloading\n", Totals{}, []string{"go: downloading\n"}, "FAIL"},
		"the last line may lack its end":   {`{"Action":"pass","Package":"p","Test":"TestA"}`, Totals{Passed: 1}, nil, "FAIL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			c := newCounter(&out)
			c.read(strings.NewReader(test.input))
			if c.totals() != test.want {
				t.Errorf("totals are %+v, not %+v", c.totals(), test.want)
			}
			for _, text := range test.shows {
				if !strings.Contains(out.String(), text) {
					t.Errorf("the output lacks %q: %q", text, out.String())
				}
			}
			if test.hides != "" && strings.Contains(out.String(), test.hides) {
				t.Errorf("the output shows %q: %q", test.hides, out.String())
			}
		})
	}
}

func TestStagesAndSummary(t *testing.T) {
	t.Parallel()
	logs := t.TempDir()
	stage := func(args ...string) (string, error) {
		var out strings.Builder
		err := run(append([]string{"-logs", logs}, args...), &out)
		return out.String(), err
	}
	if out, err := stage("-stage", "fine", "--", "sh", "-c", "echo hello"); err != nil || !strings.Contains(out, "hello\n") {
		t.Errorf("a stage that works: %v, %q", err, out)
	}
	tests := `echo '{"Action":"pass","Package":"p","Test":"TestA"}'`
	if out, err := stage("-stage", "tests", "-tests", "--", "sh", "-c", tests); err != nil || strings.Contains(out, "Action") {
		t.Errorf("a stage of tests: %v, %q", err, out)
	}
	if out, err := stage("-summary"); err != nil || !strings.HasSuffix(out, "\n1 passed, 0 failed, 0 skipped\n") {
		t.Errorf("the summary: %v, %q", err, out)
	}
	if _, err := stage("-stage", "broken", "--", "sh", "-c", "exit 3"); !errors.Is(err, errFailed) {
		t.Errorf("a stage that fails: %v", err)
	}
	if _, err := stage("-stage", "silent", "-tests", "--", "sh", "-c", tests+"; exit 1"); !errors.Is(err, errFailed) {
		t.Errorf("a stage of tests that fails with all tests passed: %v", err)
	}
	if out, err := stage("-summary"); !errors.Is(err, errFailed) || !strings.HasSuffix(out, "\n2 passed, 2 failed, 0 skipped\n") {
		t.Errorf("the summary after failures: %v, %q", err, out)
	}
	raw, err := os.ReadFile(filepath.Join(logs, "tests.log"))
	if err != nil || !strings.Contains(string(raw), `"Action":"pass"`) {
		t.Errorf("the stage's log: %v, %q", err, raw)
	}
}

// A stage that is told to end takes with it what it started.
func TestStopEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "alive")
	done := make(chan error, 1)
	go func() {
		done <- command([]string{"sh", "-c", "trap '' TERM; while :; do sleep 0.1; done & echo $$ >" + file + "; wait"}, &strings.Builder{}, &strings.Builder{})
	}()
	group := readGroup(t, file)
	stopped := make(chan error)
	close(stopped)
	stop(group, stopped)
	select {
	case err := <-done:
		if err == nil {
			t.Error("the command ended as if nothing had happened")
		}
	case <-time.After(10 * time.Second):
		t.Error("the command didn't end")
	}
}

func readGroup(t *testing.T, file string) int {
	t.Helper()
	for range 1000 {
		raw, err := os.ReadFile(file)
		if id, ok := strings.CutSuffix(string(raw), "\n"); err == nil && ok {
			group, err := strconv.Atoi(id)
			if err != nil {
				t.Fatal(err)
			}
			return group
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("the command never began")
	return 0
}
