package scripts

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// A run of some stages makes nothing that only the others need: an API server is compiled for minutes.
func TestOnlyTheNamedStagesOfTheTestsRun(t *testing.T) {
	t.Parallel()
	p := newProject(t, "test.sh", "stages.sh")
	p.fake("go", `case "$*" in "env CC") echo sh ;; esac`)
	for _, mode := range []string{"full", "default", "unit"} {
		out, calls, err := p.run("hack/test.sh "+mode, "STAGES=none")
		if err != nil || strings.Contains(calls, "--version") || strings.Contains(calls, "go test") || strings.Contains(out, "=== ") {
			t.Errorf("%s: %v: %s\n%s", mode, err, out, calls)
		}
	}
}

// A test whose package needs a cluster is skipped unless it is told that there is one.
func TestOneTestIsToldOfItsCluster(t *testing.T) {
	t.Parallel()
	for of, told := range map[string]string{
		"./test/e2e": "told E2E=1 FAULTS=", "./test/docs": "told E2E=1 FAULTS=", "./test/install": "told E2E=1 FAULTS=",
		"./test/faults": "told E2E= FAULTS=1", "./api": "told E2E= FAULTS=",
	} {
		p := newProject(t, "test_one.sh", "faults.sh")
		p.write("hack/test-programs.sh", "#!/bin/sh\n")
		p.fake("make", "")
		p.fake("kubectl", "")
		p.fake("go", `case "$*" in
*" kubeconfig") echo "$KUBECONFIG" ;;
test*) echo "told E2E=${TOOLCALL_E2E:-} FAULTS=${TOOLCALL_FAULTS:-}" >>"$CALLS" ;;
esac`)
		out, calls, err := p.run("hack/test_one.sh "+of+" TestName -short", "KUBECONFIG=local")
		if err != nil || !strings.Contains(calls, " -run TestName -short "+of+"\n"+told+"\n") {
			t.Errorf("%s: %v: %s\n%s", of, err, out, calls)
		}
	}
}

// `make help` lists every target.
func TestHelpListsEveryTarget(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	listed, err := exec.Command("make", "--no-print-directory", "-C", "../..", "help").Output()
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile(`(?m)^\.PHONY: (\S+)$`).FindAllStringSubmatch(string(makefile), -1)
	for _, target := range targets {
		if !strings.Contains(string(listed), "  "+target[1]+" ") {
			t.Errorf("make help doesn't list %s", target[1])
		}
	}
	if len(targets) < 20 {
		t.Errorf("found %d targets only", len(targets))
	}
}
