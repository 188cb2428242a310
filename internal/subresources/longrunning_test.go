package subresources

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// What the API server cuts at its request timeout this server may cut, too, and nothing else.
func TestOnlyOutputAndTransfersAreLongRunning(t *testing.T) {
	t.Parallel()
	scheme := newScheme()
	config := newConfig(scheme, serializer.NewCodecFactory(scheme))
	resolver := genericapiserver.NewRequestInfoResolver(config)
	group := "/apis/" + GroupVersion.String()
	for name, c := range map[string]struct {
		method, path string
		want         bool
	}{
		"a range of a stream":          {http.MethodGet, group + "/namespaces/ns/toolcalls/c/log?offset=5", true},
		"a follow":                     {http.MethodGet, group + "/namespaces/ns/toolcalls/c/log?follow=true", true},
		"standard input":               {http.MethodPost, group + "/namespaces/ns/toolsessions/s/proxy/input?call=c", true},
		"a download":                   {http.MethodGet, group + "/namespaces/ns/toolsessions/s/proxy/files?path=f", true},
		"an upload":                    {http.MethodPut, group + "/namespaces/ns/toolsessions/s/proxy/files?path=f", true},
		"a removal":                    {http.MethodDelete, group + "/namespaces/ns/toolsessions/s/proxy/files?path=f", true},
		"discovery of the group":       {http.MethodGet, group, false},
		"discovery of all groups":      {http.MethodGet, "/apis", false},
		"the schemas":                  {http.MethodGet, "/openapi/v3", false},
		"a call":                       {http.MethodGet, group + "/namespaces/ns/toolcalls/c", false},
		"another subresource":          {http.MethodGet, group + "/namespaces/ns/toolcalls/c/status", false},
		"a call of the name log":       {http.MethodGet, group + "/namespaces/ns/toolcalls/log", false},
		"a path that ends like a file": {http.MethodGet, "/files/proxy", false},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		info, err := resolver.NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := config.LongRunningFunc(r, info); got != c.want {
			t.Errorf("%s: long-running is %v", name, got)
		}
	}
}
