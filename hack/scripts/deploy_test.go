package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakes are programs that a script which installs something calls. They write down how they are called.
var fakes = map[string]string{
	"kubectl": `case "$*" in
"config current-context") echo "$CONTEXT" ;;
*"get secret"*) exit 1 ;;
kustomize*) echo "image: toolcall.dev/$COMPONENT:dev" ;;
*apply*) cat >>"$CALLS" ;;
esac`,
	// The first program makes images, the second is the local cluster's, which isn't the one in use.
	"go": `case "$*" in
"-C hack run ./images binary"*) touch "${@: -1}" ;;
"-C hack/cluster run . certificate"*) touch "$6/tls.crt" "$6/tls.key" ;;
*) exit 1 ;;
esac`,
	"kind": "", "minikube": "", "k3d": "",
}

// deploy runs a script of a copy of the project that has little else, and returns what it printed and called.
func deploy(t *testing.T, component, context string) (out, calls string, err error) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	const script = "deploy_server.sh"
	for _, name := range []string{"lib.sh", script} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		write("hack/"+name, string(text), 0o700)
	}
	write("bin/"+component, "program", 0o700)
	for name, text := range fakes {
		write("fakes/"+name, "#!/bin/bash\nprintf '%s\\n' \"${0##*/} $*\" >>\"$CALLS\"\n"+text+"\n", 0o700)
	}
	command := exec.Command("bash", filepath.Join(dir, "hack", script), component, "the server")
	command.Env = []string{
		"PATH=" + filepath.Join(dir, "fakes") + ":/usr/bin:/bin", "CALLS=" + filepath.Join(dir, "calls"), "CONTEXT=" + context, "COMPONENT=" + component,
		"KUBECONFIG=" + filepath.Join(dir, "kubeconfig"),
	}
	printed, err := command.CombinedOutput()
	called, _ := os.ReadFile(filepath.Join(dir, "calls"))
	return string(printed), string(called), err
}

// The MCP server and the console get onto a cluster as the operator does.
func TestImagesBesideTheOperatorAreLoadedToo(t *testing.T) {
	t.Parallel()
	for _, component := range []string{"mcp", "console"} {
		for context, load := range map[string]string{
			"kind-dev": "kind load image-archive TAR --name dev", "minikube": "minikube --profile minikube image load TAR", "k3d-dev": "k3d image import TAR --cluster dev",
		} {
			out, calls, err := deploy(t, component, context)
			before, after, _ := strings.Cut(load, "TAR")
			if err != nil || !strings.Contains(calls, before) || !strings.Contains(calls, ".tar"+after+"\n") {
				t.Errorf("%s on %s: %v: %s\n%s", component, context, err, out, calls)
			}
			if !strings.Contains(calls, "create secret tls toolcall-"+component+"-tls") || !strings.Contains(calls, "image: toolcall.dev/"+component+":") || strings.Contains(calls, component+":dev") {
				t.Errorf("%s on %s isn't installed: %s", component, context, calls)
			}
		}
		if out, calls, err := deploy(t, component, "gke_project"); err == nil || !strings.Contains(out, "set "+strings.ToUpper(component)+"_IMAGE to an image that this cluster can pull") || strings.Contains(calls, "apply") {
			t.Errorf("%s on another cluster: %v: %s", component, err, out)
		}
	}
}
