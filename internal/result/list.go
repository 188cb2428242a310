package result

import (
	"bytes"
	"encoding/json"
	"errors"
)

// MaxList is how long the longest list of a result may be.
const MaxList = 256

// List is a list that is read as far as the longest may be, and one more to show that there are more: so many empty elements
// don't take many times the memory of their encoding.
type List[T any] []T

// UnmarshalJSON reads no more elements than that.
func (l *List[T]) UnmarshalJSON(raw []byte) error {
	*l = nil
	if string(raw) == "null" {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if start, err := dec.Token(); err != nil || start != json.Delim('[') {
		return errors.New("not a list")
	}
	for dec.More() && len(*l) <= MaxList {
		var v T
		if err := dec.Decode(&v); err != nil {
			return err
		}
		*l = append(*l, v)
	}
	return nil
}

// shortened are the elements that can be listed, each corrected before, and how many times others came.
func shortened[T any](list List[T], most int, more int64, correct func(*T) (count int64, isValid bool)) (List[T], int64) {
	var kept List[T]
	more = max(more, 0)
	for _, one := range list {
		count, isValid := correct(&one)
		if len(kept) == most || !isValid {
			more = addCounts(more, count)
			continue
		}
		kept = append(kept, one)
	}
	return kept, more
}
