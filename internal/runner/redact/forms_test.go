package redact

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"unicode/utf16"
)

// formValue has bytes that each encoding changes.
const formValue = "a secret/value\"with <more> & \\ than+words"

var (
	toBase64  = base64.StdEncoding.EncodeToString
	toHex     = hex.EncodeToString
	toPercent = func(s string) string { return percentAll([]byte(s), "%%%02x") }
	toJSON    = func(s string) string { return goJSON(s, true) }
	// toUnicode is JSON with all characters escaped.
	toUnicode = func(s string) string { return replaceEach(s, `\u%04x`) }
)

func replaceEach(s, format string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

// TestTheFormsThatTheDocumentationLists has each combination that the package's comment names, both those that are
// matched and those that aren't.
func TestTheFormsThatTheDocumentationLists(t *testing.T) {
	t.Parallel()
	v, r := []byte(formValue), rand.New(rand.NewPCG(4, 4))
	matched := map[string]string{
		"base64":                         toBase64(v),
		"base64 after other bytes":       toBase64([]byte("user:" + formValue)),
		"hexadecimal":                    toHex(v),
		"percent":                        toPercent(formValue),
		"form":                           url.QueryEscape(formValue),
		"JSON once":                      toJSON(formValue),
		"JSON twice":                     toJSON(toJSON(formValue)),
		"each byte as Go quotes it":      replaceEach(formValue, `\x%02x`),
		"base64 in percent":              toPercent(toBase64(v)),
		"hexadecimal in percent":         toPercent(toHex(v)),
		"base64 in JSON":                 toUnicode(toBase64(v)),
		"hexadecimal in JSON":            toUnicode(toHex(v)),
		"base64 in JSON in JSON":         toJSON(toUnicode(toBase64(v))),
		"hexadecimal in JSON in JSON":    toJSON(toUnicode(toHex(v))),
		"wrapped base64":                 wrap(toBase64(v), r),
		"wrapped hexadecimal":            wrap(toHex(v), r),
		"wrapped base64 in JSON":         toJSON(wrap(toBase64(v), r)),
		"wrapped hexadecimal in JSON":    toJSON(wrap(toHex(v), r)),
		"wrapped base64 in percent":      toPercent(wrap(toBase64(v), r)),
		"wrapped hexadecimal in percent": toPercent(wrap(toHex(v), r)),
	}
	passed := map[string]string{
		"base64 of base64":               toBase64([]byte(toBase64(v))),
		"base64 of hexadecimal":          toBase64([]byte(toHex(v))),
		"base64 of percent":              toBase64([]byte(toPercent(formValue))),
		"base64 of JSON":                 toBase64([]byte(toUnicode(formValue))),
		"hexadecimal of base64":          toHex([]byte(toBase64(v))),
		"hexadecimal of hexadecimal":     toHex([]byte(toHex(v))),
		"hexadecimal of percent":         toHex([]byte(toPercent(formValue))),
		"hexadecimal of JSON":            toHex([]byte(toUnicode(formValue))),
		"percent twice":                  toPercent(toPercent(formValue)),
		"percent in JSON":                toUnicode(toPercent(formValue)),
		"JSON in percent":                toPercent(toUnicode(formValue)),
		"JSON three times":               toJSON(toJSON(toUnicode(formValue))),
		"wrapped base64 in JSON in JSON": toJSON(toJSON(wrapAt(toBase64(v), 7))),
		"wrapped base64 with indents":    strings.ReplaceAll(wrapAt(toBase64(v), 7), "\n", "\n  "),
		"wrapped base64, two line ends":  strings.ReplaceAll(wrapAt(toBase64(v), 7), "\n", "\n\n"),
		"hexadecimal with colons":        replaceEach(formValue, "%02x:"),
		"base32":                         base32.StdEncoding.EncodeToString(v),
		"octal":                          replaceEach(formValue, `\%03o`),
		"HTML":                           html.EscapeString(formValue),
		"UTF-16":                         inUTF16(formValue),
		"upper case":                     strings.ToUpper(formValue),
		"in single quotes of a shell":    "a secret/value\"with '<'more> & \\ than+words",
		"with backslashes of a shell":    strings.ReplaceAll(formValue, " ", `\ `),
		"a part":                         formValue[:len(formValue)-1],
		"lines with something before":    "> " + formValue[:20] + "\n> " + formValue[20:],
	}
	for _, isForeign := range []bool{false, true} {
		m := mustNew(t, []Value{{Name: "t", Value: v, Foreign: isForeign}})
		for name, text := range matched {
			if got := textOf(m, text); leftOf(formValue, []byte(got)) != "" || strings.Count(got, "[redacted: t]") != 1 {
				t.Errorf("%s isn't matched: %q became %q", name, text, got)
			}
		}
		for name, text := range passed {
			if got := textOf(m, text); got != text {
				t.Errorf("%s is matched: %q became %q", name, text, got)
			}
		}
	}
}

func inUTF16(s string) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(s)) {
		b.WriteByte(byte(unit))
		b.WriteByte(byte(unit >> 8))
	}
	return b.String()
}
