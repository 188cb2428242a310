package supervisor

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/runner/files"
	"toolcall.dev/operator/internal/runner/redact"
	"toolcall.dev/operator/internal/spec"
)

// escaped returns a text with each byte written in a format.
func escaped(text, format string) string {
	var out strings.Builder
	for _, c := range []byte(text) {
		fmt.Fprintf(&out, format, c)
	}
	return out.String()
}

// longForms are a value in each form that is redacted, each as long as it can be.
func longForms(value string) map[string]string {
	inJSON, _ := json.Marshal(value)
	return map[string]string{
		"plain": value, "base64": base64.RawStdEncoding.EncodeToString([]byte(value)), "hexadecimal": hex.EncodeToString([]byte(value)),
		"in percent": escaped(value, "%%%02x"), "in a query": url.QueryEscape(value), "in JSON": string(inJSON[1 : len(inJSON)-1]),
	}
}

var marks = regexp.MustCompile(`\[redacted(: [A-Z]+)?\]`)

// TestNoPageOfAFileShowsAPartOfAValue reads single bytes, all of them or many.
func TestNoPageOfAFileShowsAPartOfAValue(t *testing.T) {
	t.Parallel()
	const plain, broken = "a v/\"l\\\nue", "a\xffv\xfel\xfdu\xfcejkm"
	tests := longForms(plain)
	for name, text := range longForms(strings.ReplaceAll(plain, "\n", "\r\n")) {
		tests[name+", with the other line ends"] = text
	}
	for name, text := range longForms(broken) {
		tests[name+", not UTF-8"] = text
	}
	dir := t.TempDir()
	r, err := newRedaction([]envresolve.KnownValue{{Name: "TOKEN", Value: plain}, {Name: "BROKEN", Value: broken}})
	if err != nil {
		t.Fatal(err)
	}
	for name, form := range tests {
		if out := r.text(form); marks.ReplaceAllString(out, "") != "" {
			t.Errorf("%s isn't redacted: %q became %q", name, form, out)
		}
		// What is around a form is none of its characters.
		content := "!!!" + form + "!!!"
		if err := os.WriteFile(dir+"/f", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(content); at += 1 + len(form)/200 {
			rules := r.inFiles(&files.Rules{FileRules: spec.FileRules{ReadPaths: []string{dir}}})
			page := &spec.File{Operation: spec.OperationRead, Path: dir + "/f", Unit: spec.UnitBytes, Offset: int64(at), Limit: 1}
			out, _, err := files.Do(t.Context(), rules, page)
			if err != nil {
				t.Fatal(err)
			}
			if left := marks.ReplaceAllString(string(out), ""); left != "" && left != "!" {
				t.Fatalf("%s: byte %d of %q is shown", name, at-3, form)
			}
		}
	}
}

// A text around a page is as long as the longest form, whatever the value.
func TestTheTextAroundAPageHasRoomForTheLongestForm(t *testing.T) {
	t.Parallel()
	var rules files.Rules
	value := strings.Repeat("a\n", redact.MinLength)
	r, err := newRedaction([]envresolve.KnownValue{{Name: "TOKEN", Value: value + "b"}})
	if err != nil {
		t.Fatal(err)
	}
	r.inFiles(&rules)
	for name, form := range longForms(strings.ReplaceAll(value, "\n", "\r\n") + "b") {
		if int64(len(form)) > rules.HiddenAround {
			t.Errorf("%s takes %d bytes, more than %d", name, len(form), rules.HiddenAround)
		}
	}
}

// TestAGrepOfAllLinesShowsWhatIsLeftOfTheWholeFile compares what is left of the lines with what is left of the text.
func TestAGrepOfAllLinesShowsWhatIsLeftOfTheWholeFile(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(6, 28))
	values := []envresolve.KnownValue{
		{Name: "GIVEN", Value: "first-line-given\nsecond line of it\nlast", Given: true},
		{Name: "FOREIGN", Value: "a-longer-first-line\nshort\nanother-longer-line\nend"},
		{Name: "TOKEN", Value: "tok/en+0123456789"},
	}
	var forms []string
	for _, v := range values {
		for _, form := range longForms(v.Value) {
			forms = append(forms, form)
		}
	}
	slices.Sort(forms)
	r, err := newRedaction(values)
	if err != nil {
		t.Fatal(err)
	}
	left := func(text string) string {
		return strings.NewReplacer("\n", "", "\r", "").Replace(marks.ReplaceAllString(text, ""))
	}
	dir := t.TempDir()
	for round := range 300 {
		var text strings.Builder
		for range random.IntN(8) {
			form := forms[random.IntN(len(forms))]
			text.WriteString([]string{form, form[:random.IntN(len(form))], strings.Repeat("a plain line\n", random.IntN(30)), "! ", "\n"}[random.IntN(5)])
			text.WriteString([]string{"", "\n", "!", "!\n"}[random.IntN(4)])
		}
		if err := os.WriteFile(dir+"/f", []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		rules := r.inFiles(&files.Rules{FileRules: spec.FileRules{ReadPaths: []string{dir}}})
		grep := &spec.File{Operation: spec.OperationGrep, Path: dir + "/f", Pattern: "."}
		out, _, err := files.Do(t.Context(), rules, grep)
		if err != nil {
			t.Fatal(err)
		}
		var lines strings.Builder
		cut := false
		for object := range strings.Lines(string(out)) {
			var match files.Match
			if err := json.Unmarshal([]byte(object), &match); err != nil {
				t.Fatal(err)
			}
			lines.WriteString(match.Line + "\n")
			cut = cut || match.Cut
		}
		if got, want := left(lines.String()), left(r.text(text.String())); got != want && !cut {
			t.Errorf("round %d: of %q\nthe lines show %q\nin place of    %q", round, text.String(), got, want)
		}
	}
}
