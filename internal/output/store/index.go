package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/output"
)

// maxIndexBytes is well above the index of a stream of MaxLimit bytes.
const maxIndexBytes = 1 << 20

// indexVersion changes when an older operator must not read the index.
const indexVersion = 1

// index closes a stream: it says what is stored, and how to check it.
type index struct {
	Version int           `json:"version"`
	UID     types.UID     `json:"uid"`
	Stream  output.Stream `json:"stream"`
	// Artifact is the path of an artifact, which has no Stream.
	Artifact string `json:"artifact,omitempty"`
	State    State  `json:"state"`
	// Bytes is how many the process wrote.
	Bytes int64 `json:"bytes"`
	// SHA256 is that of all bytes that the process wrote; empty if nobody knows it.
	SHA256 string `json:"sha256,omitempty"`
	// Missing is the range that isn't stored.
	Missing span   `json:"missing,omitzero"`
	Parts   []part `json:"parts"`
}

// part is an object with some bytes of the stream.
type part struct {
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

func (p part) end() int64 { return p.Offset + p.Size }

// span is a range of a stream: from Start up to, not including, End.
type span struct {
	Start int64 `json:"start"`
	End   int64 `json:"end"`
}

func (s span) empty() bool { return s.Start >= s.End }

// sealed is the stored form of an index. Its hash tells a damaged index from one that says the same.
type sealed struct {
	SHA256 string          `json:"sha256"`
	Index  json.RawMessage `json:"index"`
}

// CorruptError says that the store has something else than was put there. No byte of it is handed out.
type CorruptError struct {
	Object, Problem string
}

// Is says that no byte of the stream can be had.
func (e *CorruptError) Is(target error) bool { return target == output.ErrDamaged }

func (e *CorruptError) Error() string {
	return fmt.Sprintf("the output store has wrong content: object %s %s", e.Object, e.Problem)
}

func (i *index) encode() []byte {
	inner, _ := json.Marshal(i)
	all, _ := json.Marshal(sealed{SHA256: hashOf(inner), Index: inner})
	return all
}

// decodeIndex returns the index of a stream, or an error that says what is wrong with it.
func decodeIndex(data []byte, key output.Key) (*index, error) {
	var outer sealed
	if err := decodeStrict(data, &outer); err != nil {
		return nil, err
	}
	if hashOf(outer.Index) != outer.SHA256 {
		return nil, errors.New("doesn't have its sha256")
	}
	i := &index{}
	if err := decodeStrict(outer.Index, i); err != nil {
		return nil, err
	}
	if i.Version != indexVersion {
		return nil, fmt.Errorf("has version %d, this operator reads version %d", i.Version, indexVersion)
	}
	if i.UID != key.UID || i.Stream != key.Stream || i.Artifact != key.Artifact {
		return nil, errors.New("is that of another stream")
	}
	return i, i.validate()
}

func decodeStrict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("isn't an index: %w", err)
	}
	if d.More() {
		return errors.New("has more than an index")
	}
	return nil
}

var validHash = regexp.MustCompile(`^[0-9a-f]{64}$`)

// validate checks that the parts are what the stream consists of, without a gap and without an overlap.
func (i *index) validate() error {
	switch i.State {
	case Complete, Shortened, Lost:
	default:
		return fmt.Errorf("has the state %.40q", string(i.State))
	}
	if i.SHA256 != "" && !validHash.MatchString(i.SHA256) {
		return errors.New("has a sha256 that isn't 64 hexadecimal digits")
	}
	m := i.Missing
	if m.Start < 0 || m.End < m.Start || m.End > i.Bytes {
		return fmt.Errorf("lacks bytes %d to %d of %d", m.Start, m.End, i.Bytes)
	}
	if (i.State == Complete && !m.empty()) || (i.State == Shortened && m.empty()) {
		return fmt.Errorf("is %s and lacks %d bytes", i.State, m.End-m.Start)
	}
	at := i.skip(0)
	for _, p := range i.Parts {
		if p.Offset != at || p.Size < 1 || p.Size > partBytes || p.Size > i.Bytes-p.Offset ||
			(p.Offset < m.Start && p.end() > m.Start) || !validHash.MatchString(p.SHA256) {
			return fmt.Errorf("has no part that begins at byte %d", at)
		}
		at = i.skip(p.end())
	}
	if at != i.Bytes {
		return fmt.Errorf("has no part that begins at byte %d", at)
	}
	return nil
}

// skip returns where what is stored goes on at an offset.
func (i *index) skip(at int64) int64 {
	if !i.Missing.empty() && at == i.Missing.Start {
		return i.Missing.End
	}
	return at
}

// kept is how many bytes are stored.
func (i *index) kept() int64 { return i.Bytes - (i.Missing.End - i.Missing.Start) }

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
