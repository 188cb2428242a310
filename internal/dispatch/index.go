package dispatch

import "toolcall.dev/operator/internal/dispatch/wire"

// objectName is a call or a session.
type objectName struct {
	kind            wire.OwnerKind
	namespace, name string
}

// index has runners by the calls that they were made for or have, and by the session that they serve: no pass over an object looks at all
// of them.
type index map[objectName]map[*Runner]struct{}

// set says whether a runner is found by an object.
func (x index) set(object objectName, s *Runner, found bool) {
	if found {
		if x[object] == nil {
			x[object] = map[*Runner]struct{}{}
		}
		x[object][s] = struct{}{}
		return
	}
	if delete(x[object], s); len(x[object]) == 0 {
		delete(x, object)
	}
}
