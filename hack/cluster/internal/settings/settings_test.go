package settings

import (
	"strings"
	"testing"
)

func env(pairs ...string) func(string) string {
	values := map[string]string{"HOME": "/home/u"}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return values[name] }
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	s, err := FromEnv(env())
	if err != nil || s.Slow != 1 || s.Dir != "/var/lib/toolcall-cluster" || s.Cache != "/home/u/.cache/toolcall-operator" {
		t.Fatalf("got %+v, %v", s, err)
	}
}

func TestTheCacheFollowsTheEnvironment(t *testing.T) {
	t.Parallel()
	s, err := FromEnv(env("XDG_CACHE_HOME", "/x"))
	if err != nil || s.Cache != "/x/toolcall-operator" {
		t.Fatalf("got %q, %v", s.Cache, err)
	}
	s, err = FromEnv(env("XDG_CACHE_HOME", "/x", "TOOLCALL_CACHE", "/y/z/"))
	if err != nil || s.Cache != "/y/z" {
		t.Fatalf("got %q, %v", s.Cache, err)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"TOOLCALL_CLUSTER_DIR":  "here",
		"TOOLCALL_NO_INSTALL":   "perhaps",
		"TOOLCALL_CLUSTER_SLOW": "0",
	} {
		if _, err := FromEnv(env(name, value)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	if _, err := FromEnv(env("TOOLCALL_CLUSTER_DIR", "/")); err == nil {
		t.Error("the root folder was accepted as state folder")
	}
}
