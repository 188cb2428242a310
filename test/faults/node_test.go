package faults

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// control stops, starts, restarts or kills a component of the local cluster.
func (s *suite) control(t *testing.T, verb, component string) {
	t.Helper()
	if out, err := exec.Command(s.program, verb, component).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", verb, component, err, out)
	}
}

// stopped holds a component down for a while, and has it started also when the test is cut short.
func (s *suite) stopped(t *testing.T, component string, during time.Duration) {
	t.Helper()
	s.control(t, "stop", component)
	t.Cleanup(func() { s.control(t, "start", component) })
	pause(t, during)
	s.control(t, "start", component)
}

// pause lets a fault last.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// onNode runs a command inside the node, as root there, and returns what it printed.
func (s *suite) onNode(t *testing.T, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.program, append([]string{"exec", "--"}, command...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run %q on the node: %v\n%s", command, err, stderr.String())
	}
	return string(out)
}

// awaitReady waits until the API server, the node and the operator are whole, so that the next test finds them so.
func (s *suite) awaitReady(t *testing.T) {
	t.Helper()
	await(t, "ready API server", func(ctx context.Context) (bool, error) {
		status := 0
		err := s.clients.RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status).Error()
		return status == http.StatusOK, err
	})
	s.awaitComponents(t)
	s.awaitOperator(t)
}

// awaitComponents waits until every component of the local cluster says that it is ready.
func (s *suite) awaitComponents(t *testing.T) {
	t.Helper()
	await(t, "ready components", func(context.Context) (bool, error) {
		out, err := exec.Command(s.program, "status").Output()
		return !strings.Contains(string(out), "false"), err
	})
}

// processes are the ids, on the machine, of the processes whose first arguments are as given and whose control
// group has a pod's UID in its name.
func processes(podUID string, args ...string) []int {
	want := []byte(strings.Join(args, "\x00"))
	groups, _ := filepath.Glob("/proc/[0-9]*")
	var found []int
	for _, dir := range groups {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !bytes.HasPrefix(line, want) {
			continue
		}
		group, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		id, convErr := strconv.Atoi(filepath.Base(dir))
		if err == nil && convErr == nil && inPod(string(group), podUID) {
			found = append(found, id)
		}
	}
	return found
}

func inPod(group, uid string) bool {
	return strings.Contains(group, uid) || strings.Contains(group, strings.ReplaceAll(uid, "-", "_"))
}

func kill(t *testing.T, ids ...int) {
	t.Helper()
	for _, id := range ids {
		must(t, syscall.Kill(id, syscall.SIGKILL))
	}
}
