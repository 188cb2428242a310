package convert

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
)

// topLevel names the document itself in remarks.
const topLevel = "top level"

// location is the location of a value in the document.
type location struct {
	parent *location
	// text is the path of keys, unique to the location. Keys that aren't bare are quoted.
	text string
}

func (p *location) String() string {
	if p.text == "" {
		return topLevel
	}
	return p.text
}

func (p *location) key(name string) *location {
	text := showKey(name)
	if p.text != "" {
		text = p.text + "." + text
	}
	return &location{parent: p, text: text}
}

func (p *location) index(i int) *location {
	return &location{parent: p, text: fmt.Sprintf("%s[%d]", p.text, i)}
}

// showKey writes a key as in TOML, in bounded length.
func showKey(name string) string {
	bare := name != "" && len(name) <= 64 && strings.IndexFunc(name, func(r rune) bool { return !isBare(r) }) < 0
	if bare {
		return name
	}
	shown := quote(name)
	if len(name) > maxShown {
		// The checksum keeps locations unique.
		shown = fmt.Sprintf("%s#%08x", shown, crc32.ChecksumIEEE([]byte(name)))
	}
	return shown
}

func isBare(r rune) bool {
	return r == '_' || r == '-' || (r >= '0' && r <= '9') || (r|0x20 >= 'a' && r|0x20 <= 'z')
}

// maxShown bounds texts from the document in remarks.
const maxShown = 128

// quote returns a text from the document, safe to print.
func quote(s string) string {
	if len(s) > maxShown {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(s[:maxShown], ""))
	}
	return fmt.Sprintf("%q", s)
}

// table is a TOML table and its location.
type table struct {
	at     *location
	values map[string]any
}

// keys returns the keys in order, so that the same document gives the same remarks.
func (t table) keys() []string {
	return slices.Sorted(maps.Keys(t.values))
}

// usage records which values of the document were used.
type usage struct {
	whole map[string]bool // used as a whole
	part  map[string]bool // contain a used value
}

func (u *usage) mark(at *location) {
	u.whole[at.text] = true
	for p := at.parent; p != nil; p = p.parent {
		u.part[p.text] = true
	}
}

// unused calls found for each unused value, and once for a table without any used value.
func (u *usage) unused(t table, found func(parent, at *location)) {
	for _, name := range t.keys() {
		at := t.at.key(name)
		switch {
		case u.whole[at.text]:
		case !u.part[at.text]:
			found(t.at, at)
		default:
			for _, inner := range tablesIn(at, t.values[name]) {
				u.unused(inner, found)
			}
		}
	}
}

// tablesIn returns a value that is a table, or the tables in a value that is an array.
func tablesIn(at *location, value any) []table {
	switch v := value.(type) {
	case map[string]any:
		return []table{{at, v}}
	case []any:
		var tables []table
		for i, element := range v {
			if values, ok := element.(map[string]any); ok {
				tables = append(tables, table{at.index(i), values})
			}
		}
		return tables
	default:
		return nil
	}
}
