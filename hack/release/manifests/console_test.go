package manifests_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/hack/release/manifests"
)

const (
	consoleDeployment = "apps/v1/Deployment/" + system + "/toolcall-console"
	mcpDeployment     = "apps/v1/Deployment/" + system + "/toolcall-mcp"
)

// The chart's console is that of config/console, its MCP server that of config/mcp, with the image of the chart, and each only there
// for who asks for it.
func TestTheChartInstallsTheConsoleAndTheMCPServer(t *testing.T) {
	t.Parallel()
	for server, count := range map[string]int{"console": 4, "mcp": 9} {
		want, without := kustomized(t, server), chart(t, nil)
		got := chart(t, values{server: values{"enabled": true}, server + "Image": values{"repository": "toolcall.dev/" + server, "tag": "dev"}})
		if len(want) != count {
			t.Errorf("config/%s has %d objects", server, len(want))
		}
		for name, o := range want {
			if diff := cmp.Diff(o, got[name]); diff != "" {
				t.Errorf("%s in the kustomization (-) and in the chart (+):\n%s", name, diff)
			}
			if without[name] != nil {
				t.Errorf("by default there is %s", name)
			}
			delete(got, name)
		}
		if diff := cmp.Diff(objectNames(without), objectNames(got)); diff != "" {
			t.Errorf("without %s (-) and with it (+):\n%s", server, diff)
		}
	}
}

func TestValuesReachTheMCPServer(t *testing.T) {
	t.Parallel()
	got := chart(t, values{
		"mcpImage": values{"repository": "r.test/m", "tag": "v1"},
		"mcp": values{
			"enabled": true, "tlsSecretName": "cert", "extraArgs": []any{"--max-calls=8"}, "resources": values{"limits": values{"memory": "1Gi"}},
			"networkPolicy": values{"apiServerPorts": []any{8443}},
		},
	})
	pod := at(t, got[mcpDeployment], "spec", "template", "spec")
	container := at(t, pod, "containers", 0)
	args, _ := at(t, container, "args").([]any)
	found := []any{
		at(t, container, "image"), at(t, container, "resources", "limits", "memory"), at(t, pod, "volumes", 0, "secret", "secretName"), args[len(args)-1],
		at(t, got["networking.k8s.io/v1/NetworkPolicy/"+system+"/toolcall-mcp"], "spec", "egress", 1, "ports", 0, "port"),
	}
	if diff := cmp.Diff([]any{"r.test/m:v1", "1Gi", "cert", "--max-calls=8", float64(8443)}, found); diff != "" {
		t.Error(diff)
	}
}

// With tokens passed on, the MCP server has no rights and no token.
func TestTheMCPServerPassesTokens(t *testing.T) {
	t.Parallel()
	got := chart(t, values{"mcp": values{"enabled": true, "passTokens": true, "resourceURL": "https://mcp.example.com"}})
	for name := range got {
		if strings.Contains(name, "rbac.authorization.k8s.io") && strings.Contains(name, "toolcall-mcp") {
			t.Errorf("there is %s", name)
		}
	}
	pod, _ := json.Marshal(at(t, got[mcpDeployment], "spec", "template", "spec"))
	for text, want := range map[string]bool{
		`"--pass-tokens"`: true, `"--resource-url=https://mcp.example.com"`: true, `"ca.crt"`: true, "--token-file": false, `"serviceAccountToken"`: false,
	} {
		if strings.Contains(string(pod), text) != want {
			t.Errorf("%s is there: %t: %s", text, !want, pod)
		}
	}
}

// The MCP server acts for its callers where the operator works, as the account of the release's namespace.
func TestTheMCPServerOfSomeNamespaces(t *testing.T) {
	t.Parallel()
	raw, err := manifests.Chart(chartDir, values{"mcp": values{"enabled": true}, "namespaces": []any{"a", "b"}}, manifests.Release{Name: "r", Namespace: "elsewhere", KubeVersion: "v1.36.0"})
	if err != nil {
		t.Fatal(err)
	}
	got := parse(t, raw)
	const group = "rbac.authorization.k8s.io/v1/"
	for name, want := range map[string]bool{
		group + "RoleBinding/a/toolcall-mcp-calls": true, group + "RoleBinding/b/toolcall-mcp-calls": true,
		group + "ClusterRoleBinding//toolcall-mcp": true, group + "ClusterRoleBinding//toolcall-mcp-calls": false,
	} {
		o := got[name]
		if (o != nil) != want {
			t.Errorf("%s is there: %t", name, o != nil)
		}
		if o != nil && (at(t, o, "subjects", 0, "namespace") != "elsewhere" || at(t, o, "subjects", 0, "name") != "toolcall-mcp" || at(t, o, "roleRef", "kind") != "ClusterRole") {
			t.Errorf("%s: %v", name, o)
		}
	}
	args, _ := json.Marshal(at(t, got["apps/v1/Deployment/elsewhere/toolcall-mcp"], "spec", "template", "spec", "containers", 0, "args"))
	if !strings.Contains(string(args), `"--resource-url=https://toolcall-mcp.elsewhere.svc"`) {
		t.Errorf("%s", args)
	}
}

func objectNames(objects map[string]manifests.Object) []string {
	var names []string
	for name := range objects {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestValuesReachTheConsole(t *testing.T) {
	t.Parallel()
	o := chart(t, values{
		"consoleImage": values{"repository": "r.test/c", "tag": "v1"}, "imagePullSecrets": []any{values{"name": "p"}},
		"console": values{"enabled": true, "tlsSecretName": "cert", "hosts": []any{"calls.example.com"}, "resources": values{"limits": values{"memory": "1Gi"}}},
	})[consoleDeployment]
	pod := at(t, o, "spec", "template", "spec")
	container := at(t, pod, "containers", 0)
	got := []any{
		at(t, container, "image"), at(t, container, "resources", "limits", "memory"), at(t, pod, "imagePullSecrets", 0, "name"),
		at(t, pod, "volumes", 0, "secret", "secretName"), at(t, container, "args", 6),
	}
	want := []any{"r.test/c:v1", "1Gi", "p", "cert", "--hosts=localhost,127.0.0.1,::1,toolcall-console.toolcall-system.svc,calls.example.com"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	raw, err := manifests.Chart(chartDir, values{"console": values{"enabled": true}}, manifests.Release{Name: "r", Namespace: "elsewhere", KubeVersion: "v1.36.0"})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := parse(t, raw)["apps/v1/Deployment/elsewhere/toolcall-console"]
	if args := at(t, elsewhere, "spec", "template", "spec", "containers", 0, "args", 6); args != "--hosts=localhost,127.0.0.1,::1,toolcall-console.elsewhere.svc" {
		t.Errorf("in another namespace: %v", args)
	}
}

func TestValuesReachTheConsolesNetworkPolicy(t *testing.T) {
	t.Parallel()
	const name = "networking.k8s.io/v1/NetworkPolicy/" + system + "/toolcall-console"
	policy := func(v values) manifests.Object {
		return chart(t, values{"console": values{"enabled": true, "networkPolicy": v}})[name]
	}
	if policy(values{"enabled": false}) != nil || policy(values{}) == nil {
		t.Error("enabled doesn't say whether there is a policy")
	}
	o := policy(values{"from": []any{values{"podSelector": values{}}}, "apiServerPorts": []any{8443}, "apiServerCIDRs": []any{"10.0.0.1/32"}})
	ingress, egress := at(t, o, "spec", "ingress"), at(t, o, "spec", "egress")
	got, _ := json.Marshal([]any{at(t, ingress, 0, "from"), at(t, egress, 1)})
	const want = `[[{"podSelector":{}}],{"ports":[{"port":8443}],"to":[{"ipBlock":{"cidr":"10.0.0.1/32"}}]}]`
	if string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, wrong := range []values{{"apiServerPorts": []any{}}, {"apiServerPorts": []any{70000}}, {"apiServerCIDRs": []any{"api.example.com"}}} {
		_, err := manifests.Chart(chartDir, values{"console": values{"enabled": true, "networkPolicy": wrong}}, manifests.Release{Name: "r", Namespace: system, KubeVersion: "v1.36.0"})
		if err == nil || !strings.Contains(err.Error(), "networkPolicy") {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}

func TestHostsOfTheConsoleThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"https://calls.example.com", "calls.example.com:443", "*.example.com", "a,b", ""} {
		_, err := manifests.Chart(chartDir, values{"console": values{"enabled": true, "hosts": []any{host}}}, manifests.Release{Name: "r", Namespace: system, KubeVersion: "v1.36.0"})
		if err == nil || !strings.Contains(err.Error(), "hosts") {
			t.Errorf("%q: %v", host, err)
		}
	}
}

// Nothing in the console's pod has a right or a credential: no token, no role, no Secret but its certificate.
func TestTheConsoleHasNoRights(t *testing.T) {
	t.Parallel()
	objects := kustomized(t, "console")
	for name, o := range objects {
		if strings.Contains(name, "rbac.authorization.k8s.io") {
			t.Errorf("there is %s", name)
		}
		if o.Kind() == "ServiceAccount" && at(t, o, "automountServiceAccountToken") != false {
			t.Errorf("%s mounts its token", name)
		}
	}
	pod := at(t, objects[consoleDeployment], "spec", "template", "spec")
	container := at(t, pod, "containers", 0)
	for _, check := range []struct{ got, want any }{
		{at(t, pod, "automountServiceAccountToken"), false},
		{at(t, pod, "securityContext", "runAsNonRoot"), true},
		{at(t, pod, "securityContext", "seccompProfile", "type"), "RuntimeDefault"},
		{at(t, container, "securityContext", "readOnlyRootFilesystem"), true},
		{at(t, container, "securityContext", "allowPrivilegeEscalation"), false},
		{at(t, container, "securityContext", "capabilities", "drop"), []any{"ALL"}},
		{at(t, container, "resources", "limits", "memory"), "256Mi"},
		{at(t, container, "env"), nil},
	} {
		if diff := cmp.Diff(check.want, check.got); diff != "" {
			t.Error(diff)
		}
	}
	volumes, _ := json.Marshal(at(t, pod, "volumes"))
	if text := string(volumes); strings.Contains(text, "serviceAccountToken") || strings.Count(text, `"secretName"`) != 1 || strings.Contains(text, "hostPath") {
		t.Errorf("volumes: %s", text)
	}
}
