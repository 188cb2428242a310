package supervisor

import "crypto/sha256"

// uidKey stands for a UID in 16 bytes, however long it is.
type uidKey [16]byte

func keyOf(uid string) uidKey {
	sum := sha256.Sum256([]byte(uid))
	return uidKey(sum[:16])
}

// uidSet remembers UIDs for good. It holds a bounded number of them.
type uidSet struct {
	// stopped says of a UID that its call must never be started.
	stopped map[uidKey]bool
	max     int
}

func newUIDSet(limit int) *uidSet { return &uidSet{stopped: map[uidKey]bool{}, max: limit} }

func (s *uidSet) len() int { return len(s.stopped) }

// isFull says that nothing more can be remembered. No call that isn't in a full set may be started.
func (s *uidSet) isFull() bool { return len(s.stopped) >= s.max }

func (s *uidSet) has(uid string) bool {
	_, ok := s.stopped[keyOf(uid)]
	return ok
}

func (s *uidSet) isStopped(uid string) bool { return s.stopped[keyOf(uid)] }

// add remembers a UID if there is room.
func (s *uidSet) add(uid string, stopped bool) {
	if !s.isFull() {
		s.stopped[keyOf(uid)] = stopped
	}
}
