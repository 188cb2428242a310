package apiservertest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dies in the environment has the test's program start a server, say where, and die.
const dies = "TOOLCALL_TEST_DIES"

func TestMain(m *testing.M) {
	if os.Getenv(dies) == "" {
		os.Exit(m.Run())
	}
	s, err := Start(Options{})
	if err != nil {
		panic(err)
	}
	etcd, server, err := s.Processes()
	fmt.Println(s.guard.folder, etcd, server, err)
	panic("a test fails badly")
}

func TestAProcessThatDiesLeavesNothing(t *testing.T) {
	t.Parallel()
	Needs(t)
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), dies+"=1")
	said, _ := command.Output()
	var folder string
	var etcd, server int
	if n, err := fmt.Sscan(string(said), &folder, &etcd, &server); n != 3 {
		t.Fatalf("%v: %s", err, said)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, left := os.Stat(folder)
		if os.IsNotExist(left) && syscall.Kill(etcd, 0) != nil && syscall.Kill(server, 0) != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("folder %s: %v; processes %d and %d", folder, left, etcd, server)
		}
	}
}

func TestAServerThatCannotStartLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if _, err := Start(Options{Assets: "/none"}); err == nil {
		t.Error("it started")
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestAServerHasWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	began := time.Now()
	s := New(t, Options{CRDs: true})
	t.Logf("started in %s", time.Since(began))
	began = time.Now()
	if err := s.Install("admission/requested_by.yaml", "admission/session_requested_by.yaml"); err != nil {
		t.Error(err)
	}
	t.Logf("installed in %s", time.Since(began))
	for what, want := range map[string]string{"crd": "toolcalls.toolcall.dev", "mutatingadmissionpolicy": "toolcall-requested-by"} {
		if said, err := s.Kubectl("", "get", what, "--output=name"); err != nil || !strings.Contains(said, want) {
			t.Errorf("kubectl get %s: %v: %s", what, err, said)
		}
	}
}
