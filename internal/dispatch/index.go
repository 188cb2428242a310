package dispatch

import "k8s.io/apimachinery/pkg/types"

// index has runners by the name of a call.
type index map[types.NamespacedName]map[*Runner]struct{}

// set says whether a runner is found by a name.
func (x index) set(name types.NamespacedName, s *Runner, found bool) {
	if found {
		if x[name] == nil {
			x[name] = map[*Runner]struct{}{}
		}
		x[name][s] = struct{}{}
		return
	}
	if delete(x[name], s); len(x[name]) == 0 {
		delete(x, name)
	}
}
