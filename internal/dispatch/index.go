package dispatch

// index has sessions by the name of a call.
type index map[callName]map[*Session]struct{}

// set says whether a session is found by a name.
func (x index) set(name callName, s *Session, found bool) {
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
