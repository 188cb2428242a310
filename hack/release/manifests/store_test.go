package manifests_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const storeSecret = "v1/Secret/" + system + "/toolcall-store"

// The chart's store is that of config/store, with credentials that nobody else has.
func TestTheChartInstallsTheStore(t *testing.T) {
	t.Parallel()
	want, got := kustomized(t, "store"), chart(t, nil)
	without := chart(t, values{"store": values{"enabled": false}})
	for name, o := range want {
		if diff := cmp.Diff(o, got[name]); diff != "" {
			t.Errorf("%s in the kustomization (-) and in the chart (+):\n%s", name, diff)
		}
		if without[name] != nil {
			t.Errorf("without the store there is %s", name)
		}
	}
	keys, again := asMap(at(t, got[storeSecret], "data")), asMap(at(t, chart(t, nil)[storeSecret], "data"))
	for name, length := range map[string]int{"AWS_ACCESS_KEY_ID": 20, "AWS_SECRET_ACCESS_KEY": 40} {
		encoded, _ := keys[name].(string)
		if key, err := base64.StdEncoding.DecodeString(encoded); err != nil || len(key) != length || encoded == again[name] {
			t.Errorf("%s is %q, and again %q", name, keys[name], again[name])
		}
	}
	if without[storeSecret] != nil || chart(t, values{"store": values{"createSecret": false}})[storeSecret] != nil {
		t.Error("there are credentials that nobody asked for")
	}
}

func outputStore(t *testing.T, v values) string {
	t.Helper()
	args, _ := at(t, deployment(t, v), "spec", "template", "spec", "containers", 0, "args").([]any)
	for _, arg := range args {
		if location, is := strings.CutPrefix(arg.(string), "--output-store="); is {
			return location
		}
	}
	return ""
}

func TestTheOperatorIsToldWhereItsStoreIs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		values values
		want   string
	}{
		{nil, "s3://toolcall?endpoint=http://toolcall-store." + system + ".svc:9000"},
		{values{"store": values{"enabled": false}}, ""},
		{values{"outputStore": values{"location": "gs://b?prefix=a"}}, "gs://b?prefix=a"},
		{values{"outputStore": values{"location": "file:///output"}, "replicas": 1}, "file:///output"},
	} {
		if got := outputStore(t, test.values); got != test.want {
			t.Errorf("%v: %q, want %q", test.values, got, test.want)
		}
	}
	for name := range chart(t, values{"outputStore": values{"location": "gs://b"}}) {
		if strings.Contains(name, "toolcall-store") {
			t.Errorf("with another store there is %s", name)
		}
	}
}

func TestValuesReachTheStore(t *testing.T) {
	t.Parallel()
	o := chart(t, values{
		"storeImage": values{"repository": "r.test/s", "tag": "v1"}, "priorityClassName": "high", "imagePullSecrets": []any{values{"name": "p"}},
		"outputStore": values{"secretName": "keys"}, "store": values{"size": "1Gi", "storageClassName": "fast", "resources": values{"limits": values{"memory": "1Gi"}}},
	})["apps/v1/StatefulSet/"+system+"/toolcall-store"]
	pod, claim := at(t, o, "spec", "template", "spec"), at(t, o, "spec", "volumeClaimTemplates", 0, "spec")
	container := at(t, pod, "containers", 0)
	got := []any{
		at(t, container, "image"), at(t, container, "envFrom", 0, "secretRef", "name"), at(t, container, "resources", "limits", "memory"),
		at(t, pod, "priorityClassName"), at(t, pod, "imagePullSecrets", 0, "name"),
		at(t, claim, "resources", "requests", "storage"), at(t, claim, "storageClassName"),
	}
	if want := []any{"r.test/s:v1", "keys", "1Gi", "high", "p", "1Gi", "fast"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
