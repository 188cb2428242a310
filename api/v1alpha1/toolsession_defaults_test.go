package v1alpha1

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// A session that the API server hasn't completed is treated as one that it has.
func TestASessionsDefaultsAreThoseOfTheMarkers(t *testing.T) {
	t.Parallel()
	session, set := &ToolSession{}, &ToolSession{}
	for _, value := range []**int32{
		&set.Spec.IdleTimeoutSeconds, &set.Spec.MaxLifetimeSeconds, &set.Spec.MaxConcurrentCalls, &set.Spec.MaxCalls, &set.Spec.TTLSecondsAfterEnded,
	} {
		*value = new(int32)
		**value = 7
	}
	inUse := map[string]func(*ToolSession) int{
		"idleTimeoutSeconds":   func(s *ToolSession) int { return int(s.IdleTimeout() / time.Second) },
		"maxLifetimeSeconds":   func(s *ToolSession) int { return int(s.MaxLifetime() / time.Second) },
		"maxConcurrentCalls":   (*ToolSession).MaxConcurrentCalls,
		"maxCalls":             (*ToolSession).MaxCalls,
		"ttlSecondsAfterEnded": func(s *ToolSession) int { return int(s.TTLAfterEnded() / time.Second) },
	}
	for _, f := range fields(t) {
		_, marker, ok := strings.Cut(f.doc, "+kubebuilder:default=")
		if f.owner != "ToolSessionSpec" || !ok {
			continue
		}
		marker, _, _ = strings.Cut(marker, "\n")
		if read := inUse[f.json]; read == nil || strconv.Itoa(read(session)) != marker || read(set) != 7 {
			t.Errorf("%s: the marker says %s, and the method something else", f.json, marker)
		}
		delete(inUse, f.json)
	}
	for name := range inUse {
		t.Errorf("%s has no marker", name)
	}
}
