package result

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// captured is the stream that a supervisor makes of data when it keeps keep bytes.
func captured(data []byte, keep int) Stream {
	sum := sha256.Sum256(data)
	s := Stream{Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:]), InvalidUTF8: !utf8.Valid(data)}
	head := min(keep-keep/2, len(data))
	tail := min(keep/2, len(data)-head)
	s.Head, s.Tail = data[:head], data[len(data)-tail:]
	return s
}

func TestTextKeepsWhatFitsAndSaysWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data        string
		keep, limit int
		want        string
		truncated   bool
	}{
		"nothing written":                      {"", 10, 10, "", false},
		"nothing written, nothing wanted":      {"", 0, 0, "", false},
		"all of it":                            {"hello\n", 10, 10, "hello\n", false},
		"exactly the limit":                    {"hello", 5, 5, "hello", false},
		"one byte over what is kept":           {"hello!", 5, 100, "hel\n[... 1 byte left out ...]\no!", true},
		"one byte over the limit":              {"hello!", 100, 5, "hel\n[... 1 byte left out ...]\no!", true},
		"a limit under what was kept":          {"0123456789", 8, 4, "01\n[... 6 bytes left out ...]\n89", true},
		"limit 1":                              {"hello", 100, 1, "h\n[... 4 bytes left out ...]\n", true},
		"limit 0":                              {"hello", 100, 0, "[... 5 bytes left out ...]\n", true},
		"a negative limit":                     {"hello", 100, -1, "[... 5 bytes left out ...]\n", true},
		"a character wider than the limit":     {"😀😀", 100, 1, "[... 8 bytes left out ...]\n", true},
		"a cut at a newline adds none":         {"ab\ncdefgh", 6, 6, "ab\n[... 3 bytes left out ...]\nfgh", true},
		"a character that the capture cut":     {"aé--éb", 4, 100, "a\n[... 6 bytes left out ...]\nb", true},
		"a character that the limit would cut": {"aé--éb", 100, 4, "a\n[... 6 bytes left out ...]\nb", true},
		"NULs and control characters are kept": {"a\x00b\x1b[31m\r\n", 100, 100, "a\x00b\x1b[31m\r\n", false},
		"bytes that aren't UTF-8":              {"a\xffb", 10, 10, "a\uFFFDb", false},
		"a sequence stops short at the end":    {"a\xe2\x82", 10, 10, "a\uFFFD", false},
		"the Unicode standard's own example": {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", 100, 100,
			"a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd", false},
		"overlong and surrogate forms":         {"\xC0\xAF\xED\xA0\x80", 100, 100, strings.Repeat("\uFFFD", 5), false},
		"replacements count against the limit": {"\xff\xff\xff\xff", 100, 6, "\uFFFD\n[... 2 bytes left out ...]\n\uFFFD", true},
		"a replacement that the process wrote": {"\uFFFDa", 10, 10, "\uFFFDa", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := captured([]byte(c.data), c.keep)
			got, truncated := s.Text(c.limit)
			if got != c.want || truncated != c.truncated {
				t.Errorf("got %q, %v; want %q, %v", got, truncated, c.want, c.truncated)
			}
		})
	}
}

func TestTextOfAStreamThatClaimsLessThanItHolds(t *testing.T) {
	t.Parallel()
	s := Stream{Head: []byte("hello"), Bytes: -5}
	if got, truncated := s.Text(2); got != "h\n[... 3 bytes left out ...]\no" || !truncated {
		t.Errorf("got %q, %v", got, truncated)
	}
}

var markerLine = regexp.MustCompile(`\[\.\.\. (\d+) bytes? left out \.\.\.\]\n`)

func FuzzText(f *testing.F) {
	f.Add([]byte("hello\nworld"), 4, 3)
	f.Add([]byte("é😀\xff\xe2\x82"), 5, 100)
	f.Add([]byte("[... 3 bytes left out ...]\n"), 9, 9)
	f.Add(bytes.Repeat([]byte("\xf0\x9f\x98\x80"), 9), 7, 6)
	f.Fuzz(func(t *testing.T, data []byte, keep, limit int) {
		keep, limit = abs(keep)%1000, abs(limit)%1000
		s := captured(data, keep)
		text, truncated := s.Text(limit)
		if err := checkText(data, text, truncated, limit); err != nil {
			t.Errorf("keep %d, limit %d, data %q, text %q: %v", keep, limit, data, text, err)
		}
		if len(data) <= keep && utf8.Valid(data) && len(data) <= limit && (truncated || text != string(data)) {
			t.Errorf("a whole valid stream isn't byte-exact: %q, %q", data, text)
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}

// checkText says what is wrong with a text of data.
func checkText(data []byte, text string, truncated bool, limit int) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("isn't UTF-8")
	}
	if !truncated {
		if len(text) > limit {
			return fmt.Errorf("is longer than the limit")
		}
		return sameButReplaced(data, text)
	}
	if len(text) > limit+MaxMarker {
		return fmt.Errorf("is longer than the limit and the marker")
	}
	// The data itself may hold lines like the marker: one of them must fit.
	for _, at := range markerLine.FindAllStringSubmatchIndex(text, -1) {
		left, _ := strconv.Atoi(text[at[2]:at[3]])
		if checkCut(data, text[:at[0]], text[at[1]:], left) == nil {
			return nil
		}
	}
	return fmt.Errorf("has no marker that tells the truth")
}

func checkCut(data []byte, head, tail string, left int) error {
	for _, h := range []string{head, strings.TrimSuffix(head, "\n")} {
		for n := 0; n+left <= len(data); n++ {
			if sameButReplaced(data[:n], h) == nil && sameButReplaced(data[n+left:], tail) == nil {
				return nil
			}
		}
	}
	return fmt.Errorf("not a cut")
}

// sameButReplaced compares what isn't a replacement, and allows no replacement in what is valid.
func sameButReplaced(data []byte, text string) error {
	if utf8.Valid(data) {
		if string(data) != text {
			return fmt.Errorf("differs from what was written")
		}
		return nil
	}
	valid := strings.ReplaceAll(string(bytes.ToValidUTF8(data, nil)), "\uFFFD", "")
	if strings.ReplaceAll(text, "\uFFFD", "") != valid {
		return fmt.Errorf("differs from what was written")
	}
	if !strings.Contains(text, "\uFFFD") {
		return fmt.Errorf("hides that it isn't UTF-8")
	}
	return nil
}

func BenchmarkText(b *testing.B) {
	s := captured(bytes.Repeat([]byte("0123456789abcdé\n"), 1<<15), 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		s.Text(32 << 10)
	}
}
