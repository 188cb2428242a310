package dispatch

import "k8s.io/apimachinery/pkg/types"

// index has sessions by the name of a call.
type index map[types.NamespacedName]map[*Session]struct{}

// set says whether a session is found by a name.
func (x index) set(name types.NamespacedName, s *Session, found bool) {
	if found {
		if x[name] == nil {
			x[name] = map[*Session]struct{}{}
		}
		x[name][s] = struct{}{}
		return
	}
	if delete(x[name], s); len(x[name]) == 0 {
		delete(x, name)
	}
}
