package convert

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
)

func TestLocationsReadLikeTOML(t *testing.T) {
	t.Parallel()
	root := &location{}
	for want, at := range map[string]*location{
		topLevel:                            root,
		"a":                                 root.key("a"),
		"a.b-c_1":                           root.key("a").key("b-c_1"),
		`a."b.c"`:                           root.key("a").key("b.c"),
		`""`:                                root.key(""),
		`"a b"[3].c`:                        root.key("a b").index(3).key("c"),
		`"\x1b[31m"`:                        root.key("\x1b[31m"),
		`"\u202e"`:                          root.key("\u202e"),
		`"ä"`:                               root.key("ä"),
		`"\"quoted\""`:                      root.key(`"quoted"`),
		strings.Repeat("x", 64):             root.key(strings.Repeat("x", 64)),
		`"` + strings.Repeat("x", 65) + `"`: root.key(strings.Repeat("x", 65)),
	} {
		if got := at.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// However long keys are, a location is short, and differs from that of another key.
func TestLongKeysAreCut(t *testing.T) {
	t.Parallel()
	root, long := &location{}, strings.Repeat("ä", 1000)
	one, other := root.key(long+"1").String(), root.key(long+"2").String()
	if len(one) > 200 || one == other || !utf8.ValidString(one) {
		t.Errorf("got %s and %s", one, other)
	}
}

func TestTextsAreCutAtCharacters(t *testing.T) {
	t.Parallel()
	if got := quote(strings.Repeat("x", maxShown-1) + "ää"); !utf8.ValidString(got) || !strings.HasSuffix(got, "…") || len(got) > maxShown+10 {
		t.Errorf("got %s", got)
	}
}

// A bare key of ours is a bare key of TOML.
func FuzzKeys(f *testing.F) {
	for _, key := range []string{"a", "a-b", "1", "", "a.b", "ä", "\x00", `"`} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		shown := showKey(key)
		if strings.ContainsFunc(shown, func(r rune) bool { return r < ' ' || r == 0x7f }) || len(shown) > 8*maxShown {
			t.Errorf("%q is shown as %q", key, shown)
		}
		if strings.HasPrefix(shown, `"`) {
			return
		}
		var values map[string]any
		if err := toml.Unmarshal([]byte(shown+" = 1"), &values); err != nil || len(values) != 1 || values[key] == nil {
			t.Errorf("%q is shown as %q, which TOML reads as %v (%v)", key, shown, values, err)
		}
	})
}

func TestUsageFindsWhatWasNotUsed(t *testing.T) {
	t.Parallel()
	var values map[string]any
	if err := toml.Unmarshal([]byte("a = 1\n[b]\nc = 1\nd = 1\n[[e]]\nf = 1\n[[e]]\ng = 1\n[h]\ni = 1\n"), &values); err != nil {
		t.Fatal(err)
	}
	root := table{&location{}, values}
	u := usage{whole: map[string]bool{}, part: map[string]bool{}}
	u.mark(root.at.key("a"))
	u.mark(root.at.key("b").key("c"))
	u.mark(root.at.key("e").index(1).key("g"))
	var unused []string
	u.unused(root, func(_, at *location) { unused = append(unused, at.String()) })
	if got := strings.Join(unused, " "); got != "b.d e[0].f h" {
		t.Errorf("unused: %s", got)
	}
}
