package standalone

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/internal/testing/apiservertest"
)

// A server's time is that of the processes that came with it, and of no other's.
func TestAServersProcessesAreItsOwn(t *testing.T) {
	apiservertest.Needs(t)
	apiservertest.Reads(t, "config")
	first, err := StartServer(t.Context(), "../../..")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Stop()
	second, err := StartServer(t.Context(), "../../..")
	if err != nil {
		t.Fatal(err)
	}
	defer second.Stop()
	for _, s := range []*Server{first, second} {
		names := slices.Sorted(maps.Values(s.processes))
		if diff := cmp.Diff([]string{APIServer, Etcd}, names); diff != "" {
			t.Error(diff)
		}
		for pid := range s.processes {
			if s == first && second.processes[pid] != "" {
				t.Errorf("both servers have process %d", pid)
			}
			if bytes, err := Resident(pid); err != nil || bytes < 1<<20 {
				t.Errorf("%d bytes: %v", bytes, err)
			}
		}
		if err := s.CreateFinished(t.Context(), "finished", 2); err != nil {
			t.Error(err)
		}
		spent, err := s.Spent("finished")
		if err != nil || len(spent) != 2 || spent["ms CPU of "+APIServer] <= 0 || spent["ms CPU of "+Etcd] <= 0 {
			t.Errorf("got %v, %v", spent, err)
		}
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
