package manifests_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/hack/release/manifests"
)

const (
	root     = "../../../"
	chartDir = root + "charts/toolcall-operator"
	system   = "toolcall-system"
)

type values = map[string]any

func chart(t *testing.T, v values) map[string]manifests.Object {
	t.Helper()
	raw, err := manifests.Chart(chartDir, v, manifests.Release{Name: "r", Namespace: system, KubeVersion: "v1.36.0"})
	if err != nil {
		t.Fatal(err)
	}
	objects := parse(t, raw)
	if err := manifests.DropReleaseLabels(objects); err != nil {
		t.Error(err)
	}
	return objects
}

func parse(t *testing.T, raw []byte) map[string]manifests.Object {
	t.Helper()
	objects, err := manifests.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func kustomized(t *testing.T, config string) map[string]manifests.Object {
	t.Helper()
	raw, err := manifests.Kustomize(root + "config/" + config)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, raw)
}

// at follows keys and indexes into an object.
func at(t *testing.T, o any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch key := step.(type) {
		case string:
			o = asMap(o)[key]
		case int:
			list, _ := o.([]any)
			if key >= len(list) {
				t.Fatalf("%v has no element %d", o, key)
			}
			o = list[key]
		}
	}
	return o
}

func asMap(o any) map[string]any {
	if object, ok := o.(manifests.Object); ok {
		return object
	}
	m, _ := o.(map[string]any)
	return m
}

func TestTheChartInstallsWhatTheKustomizationDoes(t *testing.T) {
	t.Parallel()
	for config, namespaces := range map[string][]any{"default": nil, "namespaced": {"toolcall-demo"}} {
		t.Run(config, func(t *testing.T) {
			t.Parallel()
			want := kustomized(t, config)
			// Helm's namespace is made before the release, and not by it.
			delete(want, "v1/Namespace//"+system)
			if len(want) < 20 {
				t.Fatalf("the kustomization has %d objects only", len(want))
			}
			got := chart(t, values{"crds": values{"keep": false}, "namespaces": namespaces, "store": values{"enabled": false}})
			for name := range want {
				if got[name] == nil {
					t.Errorf("the chart has no %s", name)
				}
			}
			for name, o := range got {
				if diff := cmp.Diff(want[name], o); diff != "" {
					t.Errorf("%s in the kustomization (-) and in the chart (+):\n%s", name, diff)
				}
			}
		})
	}
}

// Before Kubernetes 1.36 there is no MutatingAdmissionPolicy to install; everything else is the same.
func TestTheChartInstallsWhatTheClusterServes(t *testing.T) {
	t.Parallel()
	render := func(version string, v values) map[string]manifests.Object {
		raw, err := manifests.Chart(chartDir, v, manifests.Release{Name: "r", Namespace: system, KubeVersion: version})
		if err != nil {
			t.Fatalf("Kubernetes %s: %v", version, err)
		}
		return parse(t, raw)
	}
	none := values{"enabled": false}
	all := render("v1.36.0", values{"store": none})
	var stamps []string
	for name := range all {
		if strings.Contains(name, "/MutatingAdmissionPolicy") {
			stamps = append(stamps, name)
		}
	}
	if len(stamps) != 6 {
		t.Fatalf("on Kubernetes 1.36: %v", stamps)
	}
	without := maps.Clone(all)
	for _, name := range stamps {
		delete(without, name)
	}
	for name, tc := range map[string]struct {
		version string
		values  values
		want    map[string]manifests.Object
	}{
		"the oldest":                   {"v1.33.0", nil, without},
		"a vendor's":                   {"v1.33.5-gke.1080000", nil, without},
		"the last without":             {"v1.35.4+k3s1", nil, without},
		"a release candidate":          {"v1.36.0-rc.0", nil, all},
		"a vendor's new one":           {"v1.36.2-eks-abc", nil, all},
		"a newer one":                  {"v1.37.0", nil, all},
		"one that has them turned off": {"v1.36.0", values{"mutatingAdmissionPolicies": false}, without},
		"one that has them turned on":  {"v1.35.0", values{"mutatingAdmissionPolicies": true}, all},
		"one that nobody says more of": {"v1.36.0", values{"mutatingAdmissionPolicies": nil}, all},
	} {
		given := values{"store": none}
		maps.Copy(given, tc.values)
		if diff := cmp.Diff(tc.want, render(tc.version, given)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	about, err := os.ReadFile(chartDir + "/Chart.yaml")
	if err != nil || !strings.Contains(string(about), "\nkubeVersion: \">=1.33.0-0\"\n") {
		t.Errorf("the chart is for other versions of Kubernetes than the operator: %v", err)
	}
}

// The rights in every namespace become the same rights in each that is named, and nothing else changes but an argument.
func TestSomeNamespacesOnly(t *testing.T) {
	t.Parallel()
	none := values{"enabled": false}
	want, got := chart(t, values{"store": none}), chart(t, values{"store": none, "namespaces": []any{"a", "b"}})
	const group = "rbac.authorization.k8s.io/v1/"
	for _, kind := range []string{"Role", "RoleBinding"} {
		everywhere := group + "Cluster" + kind + "//toolcall-operator-namespaced"
		for _, namespace := range []string{"a", "b"} {
			o := got[group+kind+"/"+namespace+"/toolcall-operator-namespaced"]
			if o == nil || !cmp.Equal(at(t, want[everywhere], "rules"), at(t, o, "rules")) || !cmp.Equal(at(t, want[everywhere], "subjects"), at(t, o, "subjects")) {
				t.Errorf("%s of namespace %s: got %v, want what %v has", kind, namespace, o, want[everywhere])
			}
			delete(got, o.Name())
		}
		delete(want, everywhere)
	}
	operator := "apps/v1/Deployment/" + system + "/toolcall-operator"
	if args := at(t, got[operator], "spec", "template", "spec", "containers", 0, "args"); !cmp.Equal(args.([]any)[1:], []any{"--namespaces=a,b"}) {
		t.Errorf("the operator is started with %v", args)
	}
	delete(want, operator)
	delete(got, operator)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with every namespace (-) and with some (+):\n%s", diff)
	}
}

func TestKindsAreKeptByDefaultAndNothingElseIs(t *testing.T) {
	t.Parallel()
	plain := chart(t, values{"crds": values{"keep": false}})
	for name, o := range chart(t, nil) {
		policy := at(t, o, "metadata", "annotations", "helm.sh/resource-policy")
		if isKind := o.Kind() == "CustomResourceDefinition"; isKind != (policy == "keep") {
			t.Errorf("%s: resource-policy %v", name, policy)
		}
		delete(plain, name)
	}
	if len(plain) > 0 {
		t.Errorf("missing: %v", plain)
	}
	for name, o := range chart(t, values{"crds": values{"install": false}}) {
		if o.Kind() == "CustomResourceDefinition" {
			t.Errorf("%s is there without crds.install", name)
		}
	}
}

func TestAnotherNamespaceIsUsedThroughout(t *testing.T) {
	t.Parallel()
	raw, err := manifests.Chart(chartDir, nil, manifests.Release{Name: "r", Namespace: "elsewhere", KubeVersion: "v1.36.0"})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range parse(t, raw) {
		// What a description says is no object's namespace.
		if o.Kind() == "CustomResourceDefinition" {
			continue
		}
		if encoded, _ := json.Marshal(o); strings.Contains(string(encoded), system) {
			t.Errorf("%s still names %s", name, system)
		}
	}
}

// Every object says of which release it is, and no selector and no pod does: those of an installed release can't change.
func TestLabelsOfTheRelease(t *testing.T) {
	t.Parallel()
	raw, err := manifests.Chart(chartDir, values{"console": values{"enabled": true}, "mcp": values{"enabled": true}}, manifests.Release{Name: "mine", Namespace: system, KubeVersion: "v1.36.0"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"helm.sh/chart": "toolcall-operator-0.0.0-dev", "app.kubernetes.io/instance": "mine", "app.kubernetes.io/version": "dev",
		"app.kubernetes.io/managed-by": "Helm",
	}
	for name, o := range parse(t, raw) {
		labels := asMap(at(t, o, "metadata", "labels"))
		for label, value := range want {
			if labels[label] != value {
				t.Errorf("%s: %s is %v, want %v", name, label, labels[label], value)
			}
		}
		if spec, _ := json.Marshal(o["spec"]); o.Kind() != "CustomResourceDefinition" && strings.Contains(string(spec), "helm.sh/chart") {
			t.Errorf("%s has a label of the release in its spec", name)
		}
	}
}

func TestAnAccountOfAnotherName(t *testing.T) {
	t.Parallel()
	got := chart(t, values{"serviceAccount": values{"create": false, "name": "mine"}})
	if got["v1/ServiceAccount/"+system+"/toolcall-operator"] != nil || got["v1/ServiceAccount/"+system+"/mine"] != nil {
		t.Error("an account is made that the user makes")
	}
	if chart(t, values{"serviceAccount": values{"name": "mine"}})["v1/ServiceAccount/"+system+"/mine"] == nil {
		t.Error("the account isn't made")
	}
	bindings := 0
	for name, o := range got {
		subjects, _ := at(t, o, "subjects").([]any)
		for i := range subjects {
			bindings++
			if account := at(t, o, "subjects", i, "name"); account != "mine" {
				t.Errorf("%s binds %v", name, account)
			}
		}
	}
	if account := at(t, got["apps/v1/Deployment/"+system+"/toolcall-operator"], "spec", "template", "spec", "serviceAccountName"); account != "mine" || bindings != 3 {
		t.Errorf("the operator runs as %v, with %d bindings", account, bindings)
	}
	for _, name := range aboutTheAccount {
		policy := got["admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy//"+name]
		if condition, _ := at(t, policy, "spec", "matchConditions", 0, "expression").(string); !strings.Contains(condition, "'"+system+"', 'mine'].join(':')") {
			t.Errorf("%s is about %s", name, condition)
		}
	}
}

// The store, the console and the MCP server are placed by their own values.
func TestPlacement(t *testing.T) {
	t.Parallel()
	place := values{
		"nodeSelector": values{"a": "b"}, "tolerations": []any{values{"key": "k"}}, "affinity": values{"podAffinity": values{}},
		"topologySpreadConstraints": []any{values{"maxSkew": 1}}, "priorityClassName": "own",
	}
	enabled := maps.Clone(place)
	enabled["enabled"] = true
	got := chart(t, values{"store": place, "console": enabled, "mcp": enabled, "priorityClassName": "high"})
	for _, name := range []string{"StatefulSet/" + system + "/toolcall-store", "Deployment/" + system + "/toolcall-console", "Deployment/" + system + "/toolcall-mcp"} {
		pod := at(t, got["apps/v1/"+name], "spec", "template", "spec")
		for key, want := range place {
			one, _ := json.Marshal(want)
			if other, _ := json.Marshal(at(t, pod, key)); string(one) != string(other) {
				t.Errorf("%s: %s is %s, want %s", name, key, other, one)
			}
		}
	}
}

func deployment(t *testing.T, v values) manifests.Object {
	t.Helper()
	return chart(t, v)["apps/v1/Deployment/"+system+"/toolcall-operator"]
}

func TestValuesReachTheDeployment(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("a", 64)
	pod := []any{"spec", "template", "spec"}
	container := append(pod[:3:3], "containers", 0)
	for name, test := range map[string]struct {
		values values
		path   []any
		want   any
	}{
		"image and tag":     {values{"image": values{"repository": "r.test/m", "tag": "v1"}}, append(container[:5:5], "image"), "r.test/m:v1"},
		"digest alone":      {values{"image": values{"repository": "r.test/m", "digest": digest}}, append(container[:5:5], "image"), "r.test/m@" + digest},
		"tag and digest":    {values{"image": values{"tag": "v1", "digest": digest}}, append(container[:5:5], "image"), "toolcall.dev/manager:v1@" + digest},
		"pull policy":       {values{"image": values{"pullPolicy": "Always"}}, append(container[:5:5], "imagePullPolicy"), "Always"},
		"replicas":          {values{"replicas": 3}, []any{"spec", "replicas"}, float64(3)},
		"no lease":          {values{"replicas": 1, "leaderElection": values{"enabled": false}}, []any{"spec", "strategy", "type"}, "Recreate"},
		"resources":         {values{"resources": values{"limits": values{"memory": "1Gi"}}}, append(container[:5:5], "resources", "limits", "memory"), "1Gi"},
		"node selector":     {values{"nodeSelector": values{"a": "b"}}, append(pod[:3:3], "nodeSelector", "a"), "b"},
		"tolerations":       {values{"tolerations": []any{values{"key": "k"}}}, append(pod[:3:3], "tolerations", 0, "key"), "k"},
		"affinity":          {values{"affinity": values{"podAffinity": values{}}}, append(pod[:3:3], "affinity", "podAffinity"), map[string]any{}},
		"no spreading":      {values{"topologySpreadConstraints": []any{}}, append(pod[:3:3], "topologySpreadConstraints"), nil},
		"priority class":    {values{"priorityClassName": "high"}, append(pod[:3:3], "priorityClassName"), "high"},
		"pull secrets":      {values{"imagePullSecrets": []any{values{"name": "s"}}}, append(pod[:3:3], "imagePullSecrets", 0, "name"), "s"},
		"pod labels":        {values{"podLabels": values{"team": "x"}}, []any{"spec", "template", "metadata", "labels", "team"}, "x"},
		"pod annotations":   {values{"podAnnotations": values{"team": "x"}}, []any{"spec", "template", "metadata", "annotations", "team"}, "x"},
		"further volumes":   {values{"extraVolumes": []any{values{"name": "output", "emptyDir": values{}}}}, append(pod[:3:3], "volumes", 1, "name"), "output"},
		"further mounts":    {values{"extraVolumeMounts": []any{values{"name": "output", "mountPath": "/output"}}}, append(container[:5:5], "volumeMounts", 1, "mountPath"), "/output"},
		"further variables": {values{"extraEnv": []any{values{"name": "A", "value": "b"}}}, append(container[:5:5], "env", 2, "name"), "A"},
		"arguments": {
			values{
				"runnerImage": values{"repository": "r.test/r", "tag": "v1"}, "replicas": 1, "leaderElection": values{"enabled": false},
				"concurrentCalls": 5, "qps": 12.5, "log": values{"level": "debug", "encoder": "json"}, "extraArgs": []any{"--metrics-address=0"}, "auditLog": "-",
			},
			append(container[:5:5], "args"),
			[]any{
				"--runner-image=r.test/r:v1", "--leader-elect=false", "--concurrent-calls=5", "--qps=12.5",
				"--zap-log-level=debug", "--zap-encoder=json",
				"--output-store=s3://toolcall?endpoint=http://toolcall-store." + system + ".svc:9000", "--audit-log=-", "--metrics-address=0",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, at(t, deployment(t, test.values), test.path...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOptionalObjects(t *testing.T) {
	t.Parallel()
	got := chart(t, values{
		"podDisruptionBudget": values{"enabled": false},
		"serviceAccount":      values{"annotations": values{"a": "b"}},
		"networkPolicy":       values{"enabled": true, "metricsFrom": []any{values{"podSelector": values{}}}},
		"monitoring": values{
			"serviceMonitor": values{"enabled": true, "interval": "30s", "labels": values{"release": "p"}},
			"prometheusRule": values{"enabled": true, "labels": values{"release": "p"}},
		},
	})
	monitor := got["monitoring.coreos.com/v1/ServiceMonitor/"+system+"/toolcall-operator"]
	rule := got["monitoring.coreos.com/v1/PrometheusRule/"+system+"/toolcall-operator"]
	policy := got["networking.k8s.io/v1/NetworkPolicy/"+system+"/toolcall-operator"]
	for _, check := range []struct{ got, want any }{
		{at(t, monitor, "spec", "endpoints", 0, "interval"), "30s"},
		{at(t, monitor, "metadata", "labels", "release"), "p"},
		{at(t, got["v1/Service/"+system+"/toolcall-metrics"], "metadata", "labels", "toolcall.dev/metrics"), "true"},
		{at(t, rule, "metadata", "labels", "release"), "p"},
		{at(t, rule, "metadata", "labels", "app.kubernetes.io/name"), "toolcall-operator"},
		{at(t, policy, "spec", "ingress", 1, "from", 0), map[string]any{"podSelector": map[string]any{}}},
		{at(t, got["v1/ServiceAccount/"+system+"/toolcall-operator"], "metadata", "annotations", "a"), "b"},
		{got["policy/v1/PodDisruptionBudget/"+system+"/toolcall-operator"] == nil, true},
	} {
		if diff := cmp.Diff(check.want, check.got); diff != "" {
			t.Error(diff)
		}
	}
}

// Without the aggregated API there is no APIService: one that nobody answers for keeps namespaces from being deleted.
func TestWithoutTheOutputAPI(t *testing.T) {
	t.Parallel()
	off := values{"outputApi": values{"enabled": false}, "networkPolicy": values{"enabled": true}}
	got := chart(t, off)
	with := chart(t, values{"networkPolicy": values{"enabled": true}})
	for _, name := range []string{"apiregistration.k8s.io/v1/APIService//v1alpha1.subresources.toolcall.dev", "v1/Service/" + system + "/toolcall-subresources"} {
		if got[name] != nil || with[name] == nil {
			t.Errorf("%s: there without it %t, and with it %t", name, got[name] != nil, with[name] != nil)
		}
	}
	container := at(t, deployment(t, off), "spec", "template", "spec", "containers", 0)
	args, _ := at(t, container, "args").([]any)
	if !slices.Contains(args, any("--output-api=false")) {
		t.Errorf("the operator is started with %v", args)
	}
	policy := got["networking.k8s.io/v1/NetworkPolicy/"+system+"/toolcall-operator"]
	encoded, _ := json.Marshal([]any{container, policy})
	if strings.Contains(string(encoded), "subresources") {
		t.Errorf("a port for it is there: %s", encoded)
	}
}

// With cert-manager the operator makes no certificate for the API server, and doesn't write the authority either.
func TestTheOutputAPIWithCertManager(t *testing.T) {
	t.Parallel()
	const (
		issuer      = "cert-manager.io/v1/Issuer/" + system + "/toolcall-subresources"
		root        = issuer + "-root"
		certificate = "cert-manager.io/v1/Certificate/" + system + "/toolcall-subresources"
		authority   = certificate + "-ca"
		service     = "apiregistration.k8s.io/v1/APIService//v1alpha1.subresources.toolcall.dev"
	)
	on := values{"outputApi": values{"certManager": values{"enabled": true}}}
	got, without := chart(t, on), chart(t, values{})
	own := values{"outputApi": values{"certManager": values{"enabled": true, "issuerRef": values{"kind": "ClusterIssuer", "name": "ca"}}}}
	pod := at(t, deployment(t, on), "spec", "template", "spec")
	args, _ := at(t, pod, "containers", 0, "args").([]any)
	for _, check := range []struct{ got, want any }{
		{at(t, got[service], "metadata", "annotations", "cert-manager.io/inject-ca-from"), system + "/toolcall-subresources"},
		{at(t, got[certificate], "spec", "dnsNames", 0), "toolcall-subresources." + system + ".svc"},
		{at(t, got[certificate], "spec", "issuerRef", "name"), at(t, got[issuer], "metadata", "name")},
		// Renewals of the certificate, and of the authority, keep the authority's key.
		{at(t, got[issuer], "spec", "ca", "secretName"), at(t, got[authority], "spec", "secretName")},
		{at(t, got[authority], "spec", "privateKey", "rotationPolicy"), "Never"},
		{at(t, got[authority], "spec", "issuerRef", "name"), at(t, got[root], "metadata", "name")},
		{at(t, got[authority], "spec", "secretName") != at(t, got[certificate], "spec", "secretName"), true},
		{at(t, pod, "volumes", 1, "secret", "secretName"), at(t, got[certificate], "spec", "secretName")},
		{slices.Contains(args, any("--output-api-cert-dir="+at(t, pod, "containers", 0, "volumeMounts", 1, "mountPath").(string))), true},
		{at(t, chart(t, own)[certificate], "spec", "issuerRef"), map[string]any{"kind": "ClusterIssuer", "name": "ca"}},
		{chart(t, own)[issuer] == nil && chart(t, own)[root] == nil && chart(t, own)[authority] == nil, true},
		{without[certificate] == nil && without[issuer] == nil && without[root] == nil && without[authority] == nil, true},
	} {
		if diff := cmp.Diff(check.want, check.got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestValuesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		values  values
		message string
	}{
		"a value that doesn't exist":  {values{"replica": 1}, "replica"},
		"a mistyped nested value":     {values{"image": values{"name": "x"}}, "name"},
		"replicas that aren't many":   {values{"replicas": "two"}, "replicas"},
		"a digest that isn't one":     {values{"image": values{"digest": "abc"}}, "digest"},
		"too many calls at a time":    {values{"concurrentCalls": 5000}, "concurrentCalls"},
		"no namespace's name":         {values{"namespaces": []any{"a,b"}}, "namespaces"},
		"a namespace named twice":     {values{"namespaces": []any{"a", "a"}}, "namespaces"},
		"an encoder there isn't":      {values{"log": values{"encoder": "xml"}}, "encoder"},
		"a folder for two operators":  {values{"outputStore": values{"location": "file:///output"}}, "give a bucket, or set replicas to 1"},
		"no location":                 {values{"outputStore": values{"location": "bucket"}}, "location"},
		"two operators without lease": {values{"leaderElection": values{"enabled": false}}, "enable leaderElection, or set replicas to 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := manifests.Chart(chartDir, test.values, manifests.Release{Name: "r", Namespace: system, KubeVersion: "v1.36.0"})
			if err == nil || !strings.Contains(err.Error(), test.message) {
				t.Errorf("got %v, want %q in it", err, test.message)
			}
		})
	}
}

func readYAML(t *testing.T, path string) manifests.Object {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	o := manifests.Object{}
	if err := yaml.Unmarshal(raw, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// The table says of each value what values.yaml and its schema say.
func TestEveryValueIsDocumented(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(chartDir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(raw), "| value | default | |\n|---|---|---|\n")
	if !ok {
		t.Fatal("README.md has no table of values")
	}
	want := rows(t, readYAML(t, chartDir+"/values.yaml"), readYAML(t, chartDir+"/values.schema.json"), "")
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(table), "\n")); diff != "" {
		t.Errorf("values (-) and table (+) differ:\n%s", diff)
	}
}

// rows is sorted as the table is: by the order of names.
func rows(t *testing.T, values, schema map[string]any, prefix string) []string {
	t.Helper()
	properties := asMap(schema["properties"])
	if schema["additionalProperties"] != false {
		t.Errorf("%q takes values that nobody knows", prefix)
	}
	var list []string
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		value, known := values[key]
		one := asMap(properties[key])
		switch {
		case key == "global" && prefix == "":
		case !known:
			t.Errorf("values.yaml has no %s%s", prefix, key)
		case one["properties"] != nil:
			list = append(list, rows(t, asMap(value), one, prefix+key+".")...)
		default:
			encoded, _ := json.Marshal(value)
			list = append(list, fmt.Sprintf("| `%s%s` | `%s` | %s |", prefix, key, encoded, one["description"]))
		}
		delete(values, key)
	}
	if len(values) > 0 {
		t.Errorf("the schema doesn't know %v of %q", values, prefix)
	}
	return list
}
