package standalone

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFinishedCallsHaveTheOutputThatWasAskedFor(t *testing.T) {
	t.Parallel()
	for _, bytes := range []int{0, 1, 29, 4096} {
		status := FinishedStatus("x", bytes)
		if len(status.Stdout) != bytes || !status.Phase.Terminal() || !strings.HasPrefix(status.Output, status.Stdout) {
			t.Errorf("%d bytes: got %d, phase %s", bytes, len(status.Stdout), status.Phase)
		}
	}
}

func TestCPUTimeIsADifferencePerCall(t *testing.T) {
	t.Parallel()
	used := CPU{"a": 3, "new": 1}.Since(CPU{"a": 1, "gone": 1})
	used.Add(CPU{"a": 2})
	if diff := cmp.Diff(map[string]float64{"a": 40}, used.MillisecondsPerCall(100)); diff != "" {
		t.Error(diff)
	}
}

func TestThisProcessUsesTimeAndMemory(t *testing.T) {
	t.Parallel()
	// The kernel counts in hundredths of a second, and this one is busy until it has counted one.
	used, took, err := During(func() error {
		before, err := ReadCPU()
		for now := before; err == nil && now[Benchmark] <= before[Benchmark]; {
			now, err = ReadCPU()
		}
		return err
	})
	if err != nil || used[Benchmark] <= 0 || took < time.Nanosecond {
		t.Errorf("%v in %s: %v", used, took, err)
	}
	broken := errors.New("broken")
	if _, _, err := During(func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if bytes, err := Resident(os.Getpid()); err != nil || bytes < 1<<20 {
		t.Errorf("%d bytes: %v", bytes, err)
	}
}

func TestManifestsAreReadFromAFileAndFromAFolder(t *testing.T) {
	t.Chdir("../../..")
	for _, path := range manifests {
		if objects, err := ReadManifests(path); err != nil || len(objects) == 0 || objects[0].GetKind() == "" {
			t.Errorf("%s: %d objects, %v", path, len(objects), err)
		}
	}
	for _, path := range []string{"config/none", "config/none.yaml"} {
		if _, err := ReadManifests(path); err == nil {
			t.Errorf("%s is read", path)
		}
	}
}

func TestAnErrorIsExplainedByTheOperatorsLog(t *testing.T) {
	t.Parallel()
	s, broken := &Server{folder: t.TempDir()}, errors.New("broken")
	if err := s.Explain(broken); err != broken {
		t.Errorf("without a log it is %v", err)
	}
	if err := os.WriteFile(s.path(managerLog), []byte("why"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Explain(broken); !errors.Is(err, broken) || !strings.HasSuffix(err.Error(), "why") || s.Explain(nil) != nil {
		t.Errorf("with one it is %v", err)
	}
}
