package jobspec

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// DefaultUser is the user and group that calls run as unless the environment or the operator's UserRange names others, whatever
// the image says.
const DefaultUser = 1000

// minUsers is the smallest size of a UserRange. In a smaller one, namespaces would often get the same user.
const minUsers = 1_000_000

// UserRange has the user IDs that the operator chooses those of namespaces from. The zero value gives every namespace DefaultUser.
type UserRange struct{ First, Last int64 }

// ParseUserRange reads FIRST-LAST; empty is the zero value.
func ParseUserRange(text string) (UserRange, error) {
	if text == "" {
		return UserRange{}, nil
	}
	first, last, _ := strings.Cut(text, "-")
	var r UserRange
	var err error
	if r.First, err = strconv.ParseInt(first, 10, 64); err == nil {
		r.Last, err = strconv.ParseInt(last, 10, 64)
	}
	if err != nil || r.First < 1 || r.Last > math.MaxInt32 || r.Last-r.First < minUsers-1 {
		return UserRange{}, fmt.Errorf("%q must be FIRST-LAST, at least %d user IDs between 1 and %d, such as 1000000000-1999999999", text, minUsers, math.MaxInt32)
	}
	return r, nil
}

// UserOf is the user, and the group, that calls of a namespace run as. It follows from the name alone, so that it is always the
// same. Two namespaces of n get the same user with a probability of about n²/2 in the size of the range.
func (r UserRange) UserOf(namespace string) int64 {
	if r == (UserRange{}) {
		return DefaultUser
	}
	sum := sha256.Sum256([]byte(namespace))
	return r.First + int64(binary.BigEndian.Uint64(sum[:8])%uint64(r.Last-r.First+1))
}
