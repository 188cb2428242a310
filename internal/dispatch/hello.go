package dispatch

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// maxUIDBytes bounds a UID. Kubernetes' own have 36.
const maxUIDBytes = 128

// finalError is a reason that stays: a runner that is turned away with it gives up its call and doesn't dial again.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// isFinal says whether dialing again is of no use.
func isFinal(err error) bool {
	var final finalError
	return errors.As(err, &final)
}

// checkForm says why the operator can't have made the runner that says a hello. What a hello says goes into requests
// to the API server and into the status of calls: what isn't valid there would be tried again for ever.
func checkForm(h *wire.Hello) error {
	if len(validation.IsDNS1123Label(h.Namespace)) > 0 {
		return finalError{fmt.Errorf("the hello's namespace, %.64q, is not a DNS label", h.Namespace)}
	}
	for _, f := range []struct {
		field, value string
		optional     bool
	}{
		{"call", h.Call, true},
		{"pool", h.Pool, true},
		{"job", h.Job, false},
		{"pod", h.Pod, false},
		{"node", h.Node, true},
	} {
		if !(f.optional && f.value == "") && len(validation.IsDNS1123Subdomain(f.value)) > 0 {
			return finalError{fmt.Errorf("the hello's %s, %.64q, is not a DNS subdomain of at most %d characters", f.field, f.value, validation.DNS1123SubdomainMaxLength)}
		}
	}
	for _, f := range []struct {
		field, value string
		optional     bool
	}{
		{"jobUID", h.JobUID, false},
		{"podUID", h.PodUID, false},
		{"callUID", h.CallUID, true},
	} {
		if !(f.optional && f.value == "") && !isUID(f.value) {
			return finalError{fmt.Errorf("the hello's %s, %.64q, is not a UID: at most %d letters, digits, '-', '_', '.' and ':'", f.field, f.value, maxUIDBytes)}
		}
	}
	if h.Session != nil {
		return checkSessionForm(h)
	}
	return nil
}

// checkSessionForm says why no operator can have made the runner that of a session. What it holds is read and checked
// afterwards.
func checkSessionForm(h *wire.Hello) error {
	s := h.Session
	switch {
	case h.CallUID != "":
		return finalError{errors.New("the hello has a session and a call")}
	case !isUID(s.UID):
		return finalError{fmt.Errorf("the hello's session.uid, %.64q, is not a UID", s.UID)}
	case len(validation.IsDNS1123Subdomain(s.Name)) > 0:
		return finalError{fmt.Errorf("the hello's session.name, %.64q, is not a DNS subdomain", s.Name)}
	case s.Incarnation < 1 || s.Taken < 0:
		return finalError{errors.New("the hello's session has an incarnation or a number of calls that can't be")}
	case s.Held < 0 || s.Held > wire.MaxHeldCalls:
		return finalError{fmt.Errorf("the hello's session holds %d calls, at most %d", s.Held, wire.MaxHeldCalls)}
	}
	return nil
}

func isUID(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '-', c == '_', c == '.', c == ':':
		default:
			return false
		}
	}
	return s != "" && len(s) <= maxUIDBytes
}
