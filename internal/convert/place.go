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

// place is where a value stands in the document.
type place struct {
	parent *place
	// text is unique to the place: keys that aren't bare are quoted.
	text string
}

func (p *place) String() string {
	if p.text == "" {
		return topLevel
	}
	return p.text
}

func (p *place) key(name string) *place {
	text := showKey(name)
	if p.text != "" {
		text = p.text + "." + text
	}
	return &place{parent: p, text: text}
}

func (p *place) index(i int) *place {
	return &place{parent: p, text: fmt.Sprintf("%s[%d]", p.text, i)}
}

// showKey writes a key as TOML does, and never longer than fits on a line.
func showKey(name string) string {
	bare := name != "" && len(name) <= 64 && strings.IndexFunc(name, func(r rune) bool { return !isBare(r) }) < 0
	if bare {
		return name
	}
	shown := quote(name)
	if len(name) > maxShown {
		// What was cut off still tells places apart.
		shown = fmt.Sprintf("%s#%08x", shown, crc32.ChecksumIEEE([]byte(name)))
	}
	return shown
}

func isBare(r rune) bool {
	return r == '_' || r == '-' || (r >= '0' && r <= '9') || (r|0x20 >= 'a' && r|0x20 <= 'z')
}

// maxShown is how much of a text from the document is printed.
const maxShown = 128

// quote makes a text from the document safe to print.
func quote(s string) string {
	if len(s) > maxShown {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(s[:maxShown], ""))
	}
	return fmt.Sprintf("%q", s)
}

// table is a TOML table and where it stands.
type table struct {
	at     *place
	values map[string]any
}

// keys in order, so that remarks are the same every time.
func (t table) keys() []string {
	return slices.Sorted(maps.Keys(t.values))
}

// usage records which values of the document were used.
type usage struct {
	whole map[string]bool // used with all that they hold
	part  map[string]bool // hold something that was used
}

func (u *usage) mark(at *place) {
	u.whole[at.text] = true
	for p := at.parent; p != nil; p = p.parent {
		u.part[p.text] = true
	}
}

// unused calls back for every value that wasn't used, once for what holds nothing that was.
func (u *usage) unused(t table, found func(parent, at *place)) {
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

// tablesIn gives the table that a value is, or those of the array that it is.
func tablesIn(at *place, value any) []table {
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
