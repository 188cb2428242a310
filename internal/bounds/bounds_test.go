package bounds

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"toolcall.dev/operator/api/v1alpha1"
)

// encoded is how many bytes the standard library writes between the quotes.
func encoded(t testing.TB, text string) int {
	t.Helper()
	raw, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return len(raw) - len(`""`)
}

func TestTextsAreCutByTheBytesOfTheirJSON(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text  string
		limit int
		want  string
		end   string
	}{
		{"", 3, "", ""},
		{"abc", 3, "abc", "abc"},
		{"abcdef", 6, "abcdef", "abcdef"},
		{"abcdefg", 6, "abc…", "…efg"},
		{"abcdefg", 3, "…", "…"},
		{"<<", 12, "<<", "<<"},
		{"<<<", 15, "<<…", "…<<"},
		{"<<<", 14, "<…", "…<"},
		{"\x01\x01", 11, "\x01…", "…\x01"},
		{"a\"b\"c", 7, "a\"b\"c", "a\"b\"c"},
		{"a\"b\"cd", 7, "a\"b…", "…\"cd"},
		{"ääää", 7, "ää…", "…ää"},
		{"\xff\xff\xff", 15, "\xff\xff…", "…\xff\xff"},
	} {
		if got := Text(tc.text, tc.limit); got != tc.want {
			t.Errorf("%q in %d bytes: got %q, want %q", tc.text, tc.limit, got, tc.want)
		}
		if got := PathEnd(tc.text, tc.limit); got != tc.end {
			t.Errorf("the end of %q in %d bytes: got %q, want %q", tc.text, tc.limit, got, tc.end)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, seed := range []string{"plain", "<&>\"\\", "\x00\x1f\x7f", "ä🙂\u2028\u2029", "\xff\xc3\xe2\x82", strings.Repeat("…", 9)} {
		f.Add(seed, 10)
	}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = max(len(ellipsis), limit%64)
		if got, want := textSize(text), encoded(t, text); got != want {
			t.Fatalf("%q takes %d bytes, counted as %d", text, want, got)
		}
		for _, cut := range []func(string, int) string{Text, PathEnd} {
			got := cut(text, limit)
			if encoded(t, got) > limit {
				t.Fatalf("%q was cut to %q, of %d bytes; the limit is %d", text, got, encoded(t, got), limit)
			}
			if encoded(t, text) <= limit && got != text {
				t.Fatalf("%q fits and was cut to %q", text, got)
			}
			if utf8.ValidString(text) && !utf8.ValidString(got) {
				t.Fatalf("%q was cut to %q", text, got)
			}
		}
	})
}

func TestListsOfNamesAreCutAndCounted(t *testing.T) {
	t.Parallel()
	list := func(n int, name string) []string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("%s%03d", name, i)
		}
		return names
	}
	for what, tc := range map[string]struct {
		names []string
		kept  int
	}{
		"none":                   {nil, 0},
		"as many as fit":         {list(256, "N"), 256},
		"one more":               {list(257, "N"), 256},
		"long ones":              {list(100, strings.Repeat("N", 253)), v1alpha1.MaxEnvNamesBytes / 256},
		"one that is too long":   {append(list(2, "N"), strings.Repeat("N", 257), "M"), 2},
		"ones that JSON escapes": {list(256, strings.Repeat("\x01", 10)), v1alpha1.MaxEnvNamesBytes / 63},
	} {
		kept, omitted := Names(tc.names)
		if len(kept) != tc.kept || len(kept)+int(omitted) != len(tc.names) {
			t.Errorf("%s: kept %d, omitted %d; want %d of %d", what, len(kept), omitted, tc.kept, len(tc.names))
		}
		variables := make([]v1alpha1.ResolvedEnvVar, len(tc.names))
		for i, name := range tc.names {
			variables[i] = v1alpha1.ResolvedEnvVar{Name: name, Source: v1alpha1.EnvSourceImage}
		}
		if kept, omitted := Variables(variables); len(kept) != tc.kept || len(kept)+int(omitted) != len(variables) {
			t.Errorf("%s: kept %d variables, omitted %d", what, len(kept), omitted)
		}
	}
}
