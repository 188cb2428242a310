package dispatch

import (
	"errors"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// maxUIDBytes bounds a UID. Kubernetes' own have 36.
const maxUIDBytes = 128

// finalError is a reason that stays: a runner that is turned away with it gives up what it has and doesn't dial again.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// isFinal says whether dialing again is of no use.
func isFinal(err error) bool {
	var final finalError
	return errors.As(err, &final)
}

// checkForm says why the operator can't have made the runner that says a hello. What a hello says goes into requests
// to the API server and into the status of calls: what isn't valid there would be tried again for ever. The namespace and the Job are
// those that the token was made for.
func checkForm(h *wire.Hello) error {
	for _, f := range []struct {
		field, value string
		optional     bool
	}{
		{"call", h.Call, true},
		{"pool", h.Pool, true},
		{"pod", h.Pod, false},
		{"node", h.Node, true},
	} {
		if !(f.optional && f.value == "") && len(validation.IsDNS1123Subdomain(f.value)) > 0 {
			return finalError{fmt.Errorf("the hello's %s, %.64q, is not a DNS subdomain of at most %d characters", f.field, f.value, validation.DNS1123SubdomainMaxLength)}
		}
	}
	if !isUID(h.PodUID) {
		return finalError{fmt.Errorf("the hello's podUID, %.64q, is not a UID: at most %d letters, digits, '-', '_', '.' and ':'", h.PodUID, maxUIDBytes)}
	}
	if h.Serving != nil {
		return checkServing(h.Serving)
	}
	return nil
}

// checkServing says why no operator can have begun that. The calls that the runner holds are read and checked afterwards.
func checkServing(s *wire.Serving) error {
	maxHeld := wire.MaxHeldCalls
	if s.IsCall() {
		maxHeld = 1
	}
	err := s.Check()
	switch {
	case err == nil && (!isUID(s.UID) || len(validation.IsDNS1123Subdomain(s.Name)) > 0):
		err = fmt.Errorf("the hello's owner has an invalid UID, %.64q, or name, %.64q", s.UID, s.Name)
	case err == nil && s.Taken < 0:
		err = errors.New("the hello's number of calls taken is negative")
	case err == nil && (s.Held < 0 || s.Held > maxHeld):
		err = fmt.Errorf("the hello holds %d calls, at most %d", s.Held, maxHeld)
	}
	if err != nil {
		return finalError{err}
	}
	return nil
}

var uidForm = regexp.MustCompile(fmt.Sprintf(`^[a-zA-Z0-9._:-]{1,%d}$`, maxUIDBytes))

func isUID(s string) bool { return uidForm.MatchString(s) }
