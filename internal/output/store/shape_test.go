package store

import (
	"encoding/json"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/output"
)

// Whatever a source says and whatever is stored already, the parts are what the stream consists of, and the index can be
// read back.
func FuzzLayout(f *testing.F) {
	f.Add(int64(10<<20), int64(4<<20), int64(0), int64(0), 4)
	f.Add(int64(5<<20), int64(4<<20), int64(2<<20), int64(3<<20), 5)
	f.Add(int64(partBytes+2), int64(partBytes+1), int64(1), int64(1), 1)
	f.Add(int64(0), int64(1), int64(0), int64(0), 0)
	f.Fuzz(func(t *testing.T, bytes, limit, start, end int64, live int) {
		info := output.Info{Bytes: bytes % (64 << 20), Missing: output.Range{Start: start, End: end}, Complete: true, SHA256: hashOf(nil)}
		limit = 1 + max(limit%(32<<20), -(limit%(32<<20)))
		if checkInfo(info) != nil {
			return
		}
		m := missing(info, limit)
		if m.empty() {
			m = span{}
		}
		if kept := info.Bytes - (m.End - m.Start); kept > limit || kept < 0 {
			t.Fatalf("of %+v %d bytes are kept, the limit is %d", info, kept, limit)
		}
		var stored []part
		for n := range int64(min(max(live, 0), int(limit/partBytes), int(info.Bytes/partBytes))) {
			stored = append(stored, part{Offset: n * partBytes, Size: partBytes, SHA256: hashOf([]byte{byte(n)})})
		}
		i := &index{Version: indexVersion, UID: "a", Stream: output.Stdout, State: Complete, Bytes: info.Bytes, SHA256: info.SHA256, Missing: m}
		if !m.empty() {
			i.State = Shortened
		}
		i.Parts = layout(info.Bytes, m, stored)
		if again := layout(info.Bytes, m, i.Parts); len(again) != len(i.Parts) {
			t.Fatalf("%d parts are %d parts when they are stored", len(i.Parts), len(again))
		}
		for n := range i.Parts {
			if i.Parts[n].SHA256 == "" {
				i.Parts[n].SHA256 = hashOf(nil)
			}
		}
		data := i.encode()
		if _, err := decodeIndex(data, output.Key{UID: "a", Stream: output.Stdout}); err != nil {
			t.Fatalf("%+v with a limit of %d: %v\n%s", info, limit, err, data)
		}
	})
}

// The longest stream's index is within what is read back.
func TestTheIndexOfTheLongestStreamCanBeRead(t *testing.T) {
	i := &index{Version: indexVersion, UID: "a", Stream: output.Stderr, State: Shortened, Bytes: 1 << 62, SHA256: hashOf(nil)}
	i.Missing = missing(output.Info{Bytes: i.Bytes}, MaxLimit-1)
	i.Parts = layout(i.Bytes, i.Missing, nil)
	for n := range i.Parts {
		i.Parts[n].SHA256 = hashOf(nil)
	}
	data := i.encode()
	if _, err := decodeIndex(data, output.Key{UID: "a", Stream: output.Stderr}); err != nil || len(data) > maxIndexBytes {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

// seal makes an index's stored form of anything.
func seal(t testing.TB, text string) []byte {
	t.Helper()
	data, err := json.Marshal(sealed{SHA256: hashOf([]byte(text)), Index: json.RawMessage(text)})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// An index that has its hash can still be made by somebody who may write to the bucket.
func TestAHostileIndexIsRefused(t *testing.T) {
	sum := hashOf(nil)
	head := `{"version":1,"uid":"a","stream":"stdout","state":"Complete","sha256":"` + sum + `",`
	p := func(offset, size string) string {
		return `{"offset":` + offset + `,"size":` + size + `,"sha256":"` + sum + `"}`
	}
	good := head + `"bytes":3,"parts":[` + p("0", "1") + `,` + p("1", "2") + `]}`
	if _, err := decodeIndex(seal(t, good), output.Key{UID: "a", Stream: output.Stdout}); err != nil {
		t.Fatalf("a good one: %v", err)
	}
	for name, text := range map[string]string{
		"a gap":              head + `"bytes":3,"parts":[` + p("0", "1") + `,` + p("2", "1") + `]}`,
		"an overlap":         head + `"bytes":3,"parts":[` + p("0", "2") + `,` + p("1", "2") + `]}`,
		"too little":         head + `"bytes":3,"parts":[` + p("0", "2") + `]}`,
		"too much":           head + `"bytes":3,"parts":[` + p("0", "4") + `]}`,
		"no parts":           head + `"bytes":3,"parts":[]}`,
		"an empty part":      head + `"bytes":3,"parts":[` + p("0", "0") + `,` + p("0", "3") + `]}`,
		"a negative part":    head + `"bytes":3,"parts":[` + p("0", "-1") + `]}`,
		"a huge part":        head + `"bytes":9999999999,"parts":[` + p("0", "9999999999") + `]}`,
		"negative bytes":     head + `"bytes":-1,"parts":[]}`,
		"overflow":           head + `"bytes":9223372036854775807,"parts":[` + p("9223372036854775807", "1") + `]}`,
		"a part over a gap":  head + `"bytes":9,"missing":{"start":2,"end":8},"parts":[` + p("0", "3") + `,` + p("8", "1") + `]}`,
		"complete with gap":  head + `"bytes":9,"missing":{"start":0,"end":8},"parts":[` + p("8", "1") + `]}`,
		"a gap behind":       head + `"bytes":1,"missing":{"start":1,"end":8},"parts":[` + p("0", "1") + `]}`,
		"a gap before":       head + `"bytes":1,"missing":{"start":-5,"end":0},"parts":[` + p("0", "1") + `]}`,
		"a backward gap":     head + `"bytes":1,"missing":{"start":1,"end":0},"parts":[` + p("0", "1") + `]}`,
		"no hash of a part":  head + `"bytes":1,"parts":[{"offset":0,"size":1,"sha256":""}]}`,
		"another version":    `{"version":2,"uid":"a","stream":"stdout","state":"Complete","sha256":"` + sum + `","bytes":0,"parts":[]}`,
		"another call":       `{"version":1,"uid":"b","stream":"stdout","state":"Complete","sha256":"` + sum + `","bytes":0,"parts":[]}`,
		"another stream":     `{"version":1,"uid":"a","stream":"stderr","state":"Complete","sha256":"` + sum + `","bytes":0,"parts":[]}`,
		"a state of none":    `{"version":1,"uid":"a","stream":"stdout","state":"Growing","sha256":"` + sum + `","bytes":0,"parts":[]}`,
		"a hash that's none": `{"version":1,"uid":"a","stream":"stdout","state":"Complete","sha256":"../x","bytes":0,"parts":[]}`,
		"an unknown field":   head + `"bytes":0,"parts":[],"object":"../../other"}`,
		"no object":          `[]`,
		"null":               `null`,
	} {
		if i, err := decodeIndex(seal(t, text), output.Key{UID: "a", Stream: output.Stdout}); err == nil {
			t.Errorf("%s is taken as %+v", name, i)
		}
	}
	if _, err := decodeIndex(append(seal(t, good), seal(t, good)...), output.Key{UID: "a", Stream: output.Stdout}); err == nil {
		t.Error("two are taken as one")
	}
}

func FuzzIndex(f *testing.F) {
	f.Add(`{"version":1,"uid":"a","stream":"stdout","state":"Lost","bytes":9,"missing":{"start":1,"end":9},"parts":[]}`)
	f.Add(`{"version":1,"uid":"a","stream":"stdout","state":"Shortened","bytes":9,"missing":{"start":0,"end":9},"parts":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) {
			return
		}
		i, err := decodeIndex(seal(t, text), output.Key{UID: types.UID("a"), Stream: output.Stdout})
		if err != nil {
			return
		}
		sum := int64(0)
		for _, p := range i.Parts {
			sum += p.Size
		}
		if sum != i.kept() {
			t.Errorf("the parts have %d bytes, the index says %d: %s", sum, i.kept(), text)
		}
	})
}

// A damaged index isn't read as another one, whichever bit is wrong.
func TestEachBitOfAnIndexCounts(t *testing.T) {
	good := &index{Version: indexVersion, UID: "a", Stream: output.Stdout, State: Shortened, Bytes: 9 << 20, SHA256: hashOf(nil), Missing: span{Start: 1, End: 9<<20 - 1}}
	good.Parts = []part{{Size: 1, SHA256: hashOf(nil)}, {Offset: 9<<20 - 1, Size: 1, SHA256: hashOf(nil)}}
	data := good.encode()
	for at := range data {
		for bit := range 8 {
			data[at] ^= 1 << bit
			if got, err := decodeIndex(data, output.Key{UID: "a", Stream: output.Stdout}); err == nil && !reflect.DeepEqual(got, good) {
				t.Errorf("with another bit %d of byte %d it is read as %+v", bit, at, got)
			}
			data[at] ^= 1 << bit
		}
	}
}
