package scripts

import (
	"path/filepath"
	"strings"
	"testing"
)

// fakes are programs that a script which installs something calls. They write down how they are called.
var fakes = map[string]string{
	"kubectl": `case "$*" in
"config current-context") echo "$CONTEXT" ;;
*"get secret"*) exit 1 ;;
kustomize*) for name in $COMPONENT ${NAMED:-}; do echo "image: toolcall.dev/$name:dev"; done ;;
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

// deploy runs a script that installs a component, and returns what it printed and called.
func deploy(t *testing.T, component, context, line string, env ...string) (out, calls string, err error) {
	t.Helper()
	p := newProject(t, "deploy.sh", "deploy_server.sh")
	p.write("bin/"+component, "program")
	for name, text := range fakes {
		p.fake(name, text)
	}
	return p.run(line, append(env, "CONTEXT="+context, "COMPONENT="+component, "KUBECONFIG="+filepath.Join(p.dir, "kubeconfig"))...)
}

// The MCP server and the console get onto a cluster as the operator does.
func TestImagesBesideTheOperatorAreLoadedToo(t *testing.T) {
	t.Parallel()
	for _, component := range []string{"mcp", "console"} {
		for context, load := range map[string]string{
			"kind-dev": "kind load image-archive TAR --name dev", "minikube": "minikube --profile minikube image load TAR", "k3d-dev": "k3d image import TAR --cluster dev",
		} {
			out, calls, err := deploy(t, component, context, "hack/deploy_server.sh "+component+" 'the server'")
			before, after, _ := strings.Cut(load, "TAR")
			if err != nil || !strings.Contains(calls, before) || !strings.Contains(calls, ".tar"+after+"\n") {
				t.Errorf("%s on %s: %v: %s\n%s", component, context, err, out, calls)
			}
			if !strings.Contains(calls, "create secret tls toolcall-"+component+"-tls") || !strings.Contains(calls, "image: toolcall.dev/"+component+":") || strings.Contains(calls, component+":dev") {
				t.Errorf("%s on %s isn't installed: %s", component, context, calls)
			}
		}
		out, calls, err := deploy(t, component, "gke_project", "hack/deploy_server.sh "+component+" 'the server'")
		says := "set " + strings.ToUpper(component) + "_IMAGE to an image that this cluster can pull"
		if err == nil || !strings.Contains(out, says) || strings.Contains(calls, "apply") {
			t.Errorf("%s on another cluster: %v: %s", component, err, out)
		}
	}
}

// An image that is named is installed, also where the other one is made here.
func TestAnImageThatIsNamedIsInstalled(t *testing.T) {
	t.Parallel()
	for named, made := range map[string]string{"manager": "runner", "runner": "manager"} {
		variable := strings.ToUpper(named) + "_IMAGE=registry.example.com/named:1"
		out, calls, err := deploy(t, made, "kind-dev", "hack/deploy.sh", "NAMED="+named, variable)
		if err != nil {
			t.Errorf("%s is named: %v: %s", named, err, out)
		}
		if !strings.Contains(calls, "image: registry.example.com/named:1\n") || !strings.Contains(calls, "image: toolcall.dev/"+made+":") ||
			strings.Contains(calls, ":dev\n") || strings.Contains(calls, "images/"+named+"-") {
			t.Errorf("%s is named, and is called: %s", named, calls)
		}
	}
}
