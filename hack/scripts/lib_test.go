package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bash runs a line after hack/lib.sh, with programs in PATH that print how they are called. kubectl is a script.
func bash(t *testing.T, kubectl, line, stdin string, programs ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	script := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	script("kubectl", kubectl)
	for _, name := range programs {
		script(name, `printf '%s' "${0##*/}"; printf ' <%s>' "$@"; echo`)
	}
	lib, err := filepath.Abs("../lib.sh")
	if err != nil {
		t.Fatal(err)
	}
	// The local cluster isn't the one in use.
	command := exec.Command("bash", "-c", "source "+lib+"; is_local() { false; }; KUBECTL=kubectl; "+line)
	command.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
	command.Stdin = strings.NewReader(stdin)
	out, err := command.CombinedOutput()
	return string(out), err
}

// None of these tools is here: what they are told follows their documentation.
func TestImagesAreLoadedTheClustersWay(t *testing.T) {
	t.Parallel()
	for context, want := range map[string]string{
		"kind-kind":      "kind <load> <image-archive> </tmp/a b.tar> <--name> <kind>\n",
		"kind-kind-two":  "kind <load> <image-archive> </tmp/a b.tar> <--name> <kind-two>\n",
		"minikube":       "minikube <--profile> <minikube> <image> <load> </tmp/a b.tar>\n",
		"minikube-tests": "minikube <--profile> <minikube-tests> <image> <load> </tmp/a b.tar>\n",
		"k3d-dev":        "k3d <image> <import> </tmp/a b.tar> <--cluster> <dev>\n",
	} {
		out, err := bash(t, "echo "+context, "load_image '/tmp/a b.tar'", "", "kind", "minikube", "k3d")
		if err != nil || out != want {
			t.Errorf("%s: %v: %q, want %q", context, err, out, want)
		}
		if out, err := bash(t, "echo "+context, "load_image x.tar", ""); err == nil || !strings.Contains(out, "which isn't in PATH: install it") {
			t.Errorf("%s without its tool: %v: %s", context, err, out)
		}
	}
	for _, context := range []string{"gke_project_zone_name", "kind-", "k3d-", "minikubes", "my-kind-kind", ""} {
		out, err := bash(t, "echo "+context, "load_image x.tar", "", "kind", "minikube", "k3d")
		if err == nil || !strings.Contains(out, "push them to a registry") {
			t.Errorf("context %q: %v: %s", context, err, out)
		}
	}
	if out, err := bash(t, "exit 1", "cluster_type", ""); err != nil || out != "other\n" {
		t.Errorf("without a context: %v: %q", err, out)
	}
}

const manifests = `apiVersion: v1
kind: Namespace
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
spec:
  kind: ---
---
kind: MutatingAdmissionPolicyBinding
---
kind: ValidatingAdmissionPolicy
spec:
  message: |
    kind: MutatingAdmissionPolicy
---
kind: Last
`

func TestOnlyWhatTheClusterServesIsApplied(t *testing.T) {
	t.Parallel()
	const serves = `echo '{"resources":[{"name":"mutatingadmissionpolicies"}]}'`
	if out, err := bash(t, serves, "only_served", manifests); err != nil || out != manifests {
		t.Errorf("served: %v: %s", err, out)
	}
	want := `apiVersion: v1
kind: Namespace
---
kind: ValidatingAdmissionPolicy
spec:
  message: |
    kind: MutatingAdmissionPolicy
---
kind: Last
`
	out, err := bash(t, `echo '{"resources":[{"name":"validatingadmissionpolicies"}]}'`, "only_served 2>/dev/null", manifests)
	if err != nil || strings.TrimSpace(out) != strings.TrimSpace(want) {
		t.Errorf("not served: %v: %s", err, out)
	}
	if out, err := bash(t, "exit 1", "set -o pipefail; only_served 2>/dev/null | cat", manifests); err == nil || out != "" {
		t.Errorf("the API server doesn't answer: %v: %s", err, out)
	}
}
