package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSchemasOf(t *testing.T) {
	t.Parallel()
	got, err := schemasOf([]byte(`{"definitions": {
		"a.Role": {
			"properties": {"spec": {"$ref": "#/definitions/a.Spec"}},
			"x-kubernetes-group-version-kind": [{"group": "rbac.example.com", "version": "v1", "kind": "Role"}]
		},
		"a.Spec": {"properties": {"port": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.util.intstr.IntOrString"}}},
		"a.Other": {},
		"io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": "string"}
	}}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"$ref":"#/definitions/a.Role","definitions":{` +
		`"a.Role":{"additionalProperties":false,"properties":{"spec":{"$ref":"#/definitions/a.Spec"}},` +
		`"x-kubernetes-group-version-kind":[{"group":"rbac.example.com","kind":"Role","version":"v1"}]},` +
		`"a.Spec":{"additionalProperties":false,"properties":{"port":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.util.intstr.IntOrString"}}},` +
		`"io.k8s.apimachinery.pkg.util.intstr.IntOrString":{"type":["string","number"]}}}`
	if diff := cmp.Diff(want, string(got["role-rbac-v1"])); diff != "" || len(got) != 1 {
		t.Errorf("%d schemas:\n%s", len(got), diff)
	}
}
