package console

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

const calls = "/apis/toolcall.dev/v1alpha1/namespaces/agents/toolcalls"

// What passes, and what the API server gets of it.
func TestReadsThatPass(t *testing.T) {
	t.Parallel()
	const (
		root   = "/apis/toolcall.dev/v1alpha1/"
		log    = "/apis/subresources.toolcall.dev/v1alpha1/namespaces/agents/toolcalls/a/log"
		page   = "?limit=500"
		watch  = "allowWatchBookmarks=true"
		timing = "timeoutSeconds=600&watch=true"
		mine   = root + "namespaces/agents/toolcallapprovals?fieldSelector=spec.approver.username%3D"
	)
	for request, want := range map[string]string{
		calls:                                      calls + page,
		calls + "/a.b-c":                           calls + "/a.b-c",
		calls + "?limit=20&continue=eyJ2Ijo_-=":    calls + "?continue=eyJ2Ijo_-%3D&limit=20",
		calls + "?watch=true&resourceVersion=12":   calls + "?" + watch + "&resourceVersion=12&" + timing,
		calls + "?fieldSelector=metadata.name%3Da": calls + "?fieldSelector=metadata.name%3Da&limit=500",
		calls + "?fieldSelector=status.reason%3DAwaitingApproval":  calls + "?fieldSelector=status.reason%3DAwaitingApproval&limit=500",
		calls + "?fieldSelector=status.reason%3DDeniedByRule":      calls + "?fieldSelector=status.reason%3DDeniedByRule&limit=500",
		calls + "?fieldSelector=spec.sessionRef.name%3Da.b":        calls + "?fieldSelector=spec.sessionRef.name%3Da.b&limit=500",
		mine + `jane%5C%2Cdoe`:                                     mine + `jane%5C%2Cdoe&limit=500`,
		root + "namespaces/agents/toolbudgets":                     root + "namespaces/agents/toolbudgets" + page,
		"/apis/authentication.k8s.io/v1/selfsubjectreviews":        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		root + "toolcalls":                                         root + "toolcalls" + page,
		root + "toolsessions":                                      root + "toolsessions" + page,
		root + "executionpolicies":                                 root + "executionpolicies" + page,
		root + "executionpolicies/strict":                          root + "executionpolicies/strict",
		root + "namespaces/agents/executionenvironments/e":         root + "namespaces/agents/executionenvironments/e",
		log + "?stream=stderr&offset=7&follow=true":                log + "?follow=true&offset=7&stream=stderr",
		log + "?artifact=..%2Fa%26b%3Fc%00%ff":                     "",
		log + "?artifact=..%2Fa%26b%3Fc%0a":                        log + "?artifact=..%2Fa%26b%3Fc%0A&limit=67108864",
		log + "?limit=10&uid=00000000-0000-0000-0000-000000000000": log + "?limit=10&uid=00000000-0000-0000-0000-000000000000",
	} {
		u, err := url.ParseRequestURI(request)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if target, err := parseTarget(u); err == nil {
			got = strings.TrimSuffix(target.path+"?"+target.query.Encode(), "?")
		}
		if got != want {
			t.Errorf("%s became %q, not %q", request, got, want)
		}
	}
}

// Paths and parameters that lead elsewhere for somebody on the way.
var hostile = []string{
	// Other resources, groups, versions, subresources.
	"/apis/", "/apis", "/api/v1/namespaces/agents/secrets", "/apis/toolcall.dev", "/apis/toolcall.dev/v1alpha1", "/apis/toolcall.dev/v1alpha1/",
	"/apis/toolcall.dev/v1alpha1/skills", "/apis/toolcall.dev/v1alpha1/namespaces/agents/skills/a", "/apis/toolcall.dev/v1/toolcalls",
	"/apis/rbac.authorization.k8s.io/v1alpha1/clusterroles", "/apis/toolcall.dev/v1alpha1/namespaces/agents",
	"/apis/toolcall.dev/v1alpha1/namespaces/agents/executionpolicies", "/apis/toolcall.dev/v1alpha1/namespaces/agents/executionpolicies/a",
	"/apis/toolcall.dev/v1alpha1/toolcalls/a", calls + "/a/status", calls + "/a/log", calls + "/a/", calls + "/",
	"/apis/subresources.toolcall.dev/v1alpha1/namespaces/agents/toolsessions/a/proxy/files",
	"/apis/subresources.toolcall.dev/v1alpha1/namespaces/agents/toolsessions/a/log",
	"/apis/subresources.toolcall.dev/v1alpha1/namespaces/agents/toolcalls/a/log/b",
	"/apis/subresources.toolcall.dev/v1alpha1/namespaces/agents/toolcalls/a/proxy",
	// Tricks with paths.
	"/apis/toolcall.dev/v1alpha1/namespaces/agents/../toolcalls", calls + "/..", calls + "/.", calls + "/%2e%2e", calls + "/%2e%2e%2fsecrets",
	calls + "/a%2f..%2f..", calls + "/a%252f", calls + "//a", "//apis/toolcall.dev/v1alpha1/toolcalls", "/apis//toolcall.dev/v1alpha1/toolcalls",
	"/apis/%74oolcall.dev/v1alpha1/toolcalls", calls + "/a;b", calls + ";a=b", calls + "/a%00", calls + "/a%0d%0aX: y", calls + "/A", calls + "/a_b",
	calls + "/a%3fwatch=true", calls + "/a%23", calls + `/a\..\b`, calls + "/ａ", calls + "/" + strings.Repeat("a", 300),
	"/apis/toolcall.dev/v1alpha1/namespaces/a.b/toolcalls", "/apis/toolcall.dev/v1alpha1/namespaces//toolcalls",
	"/apis/../api/v1/secrets", "/apis/toolcall.dev/v1alpha1/../../../api/v1/secrets", "http://other.test" + calls,
	// Parameters.
	calls + "?watch=1", calls + "?watch=false", calls + "?watch", calls + "?timeoutSeconds=100000", calls + "?pretty=true", calls + "?limit=501",
	calls + "?limit=0", calls + "?limit=-1", calls + "?limit=1&limit=2", calls + "?watch=true&watch=true", calls + "?labelSelector=a",
	calls + "?fieldSelector=metadata.namespace=a", calls + "?fieldSelector=metadata.name%3Da,metadata.name%3Db", calls + "?fieldSelector=metadata.name%3D%3Da",
	calls + "?fieldSelector=metadata.name!%3Da", calls + "?fieldSelector=metadata.name%3DA", calls + "?fieldSelector=status.reason%3DCompleted", calls + "?fieldSelector=",
	calls + "?fieldSelector=spec.approver.username%3Da", "/apis/toolcall.dev/v1alpha1/toolsessions?fieldSelector=status.reason%3DAwaitingApproval",
	"/apis/toolcall.dev/v1alpha1/toolcallapprovals?fieldSelector=spec.approver.username%3Da,spec.callRef.name%3Db",
	"/apis/authentication.k8s.io/v1/selfsubjectreviews?dryRun=All", "/apis/authentication.k8s.io/v1/tokenreviews", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
	calls + "?fieldSelector=spec.sessionRef.name%3DA", calls + "?fieldSelector=spec.sessionRef.name%3D", calls + "?fieldSelector=spec.sessionRef.name%3Da%5C%2Cb",
	"/apis/toolcall.dev/v1alpha1/toolsessions?fieldSelector=spec.sessionRef.name%3Da", calls + "?resourceVersionMatch=Exact",
	calls + "?resourceVersion=0x1", calls + "?continue=a%0ab", calls + "?a;b", calls + "?%zz", calls + "?dryRun=All", calls + "/a?watch=true",
	calls + "?continue=" + strings.Repeat("a", maxParameter+1), calls + "?as=admin", calls + "?sendInitialEvents=true",
	logOf + "?follow=false", logOf + "?follow=1", logOf + "?limit=67108865", logOf + "?offset=-1", logOf + "?offset=9223372036854775807",
	logOf + "?stream=stdin", logOf + "?uid=a", logOf + "?timeout=1s", logOf + "?container=a", logOf + "?artifact=%ff", logOf + "?artifact=a&artifact=b",
}

const logOf = "/apis/subresources.toolcall.dev/v1alpha1/namespaces/agents/toolcalls/a/log"

func TestAdversarialRequestsDontPass(t *testing.T) {
	t.Parallel()
	for _, request := range hostile {
		u, err := url.ParseRequestURI(request)
		if err != nil {
			continue // net/http answers that.
		}
		if !strings.HasPrefix(u.Path, apiPrefix) && u.Host == "" {
			continue // The page's handler answers that; see TestOnlyThePagesFiles.
		}
		if target, err := parseTarget(u); err == nil {
			t.Errorf("%s passes as %s?%s", request, target.path, target.query.Encode())
		}
	}
}

// allowed is the language of what may reach the API server, written down a second time.
var allowed = regexp.MustCompile(`^/apis/(` +
	`toolcall\.dev/v1alpha1/(namespaces/[a-z0-9-]{1,63}/)?(toolcalls|toolsessions|executionenvironments|executionpolicies|toolcallapprovals|toolbudgets)(/[a-z0-9.-]{1,253})?` +
	`|authentication\.k8s\.io/v1/selfsubjectreviews` +
	`|subresources\.toolcall\.dev/v1alpha1/namespaces/[a-z0-9-]{1,63}/toolcalls/[a-z0-9.-]{1,253}/log)$`)

func FuzzParseTarget(f *testing.F) {
	for _, request := range append([]string{calls, calls + "/a", logOf + "?artifact=%2e%2e"}, hostile...) {
		f.Add(request)
	}
	f.Fuzz(func(t *testing.T, request string) {
		u, err := url.ParseRequestURI(request)
		if err != nil {
			return
		}
		target, err := parseTarget(u)
		if err != nil {
			if target != nil && errors.Is(err, errNotServed) {
				t.Errorf("%q: a target with an error", request)
			}
			return
		}
		if !allowed.MatchString(target.path) || strings.Contains(target.path, "/../") || strings.HasSuffix(target.path, "/..") {
			t.Errorf("%q passes as %q", request, target.path)
		}
		sent, err := http.NewRequest(http.MethodGet, "https://api.test"+target.path+"?"+target.query.Encode(), nil)
		if err != nil || sent.URL.Path != target.path || sent.URL.Host != "api.test" {
			t.Errorf("%q is sent as %v: %v", request, sent, err)
		}
		for name := range target.query {
			if !regexp.MustCompile(`^[a-zA-Z]+$`).MatchString(name) {
				t.Errorf("%q passes with the parameter %q", request, name)
			}
		}
	})
}
