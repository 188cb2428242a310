package convert

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestValidNamesStay(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxLabel)
	for _, name := range []string{"a", "1", "a-b", "a--b", "0-0", long} {
		if got := labels([]string{name})[name]; got != name {
			t.Errorf("%q became %q", name, got)
		}
	}
}

func TestInvalidNamesBecomeSimilarOnes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Dev": "dev", "my env": "my-env", "a_b.c": "a-b-c", "--x--": "x", "a  b": "a-b", "ünï": "n", "a/": "a",
		strings.Repeat("X", 100): strings.Repeat("x", maxLabel),
	} {
		if got := labels([]string{name})[name]; got != want {
			t.Errorf("%q became %q, not %q", name, got, want)
		}
	}
}

// A valid name keeps itself, whatever comes before it in the document.
func TestValidNamesAreAssignedFirst(t *testing.T) {
	t.Parallel()
	got := labels([]string{"DEV", "Dev", "dev"})
	if got["dev"] != "dev" || got["Dev"] == got["DEV"] || !strings.HasPrefix(got["Dev"], "dev-") || !strings.HasPrefix(got["DEV"], "dev-") {
		t.Errorf("got %q", got)
	}
}

func TestEmptyNamesGetNone(t *testing.T) {
	t.Parallel()
	if got := labels([]string{"", "a"}); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}

func TestSubdomains(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "a.b", "a-b.c-d", "1.2", "", ".", "a.", ".a", "a..b", "A.b", "a_b", "-a", "a-.b", strings.Repeat("a.", 126) + "a", strings.Repeat("a.", 127) + "a"} {
		if got, want := isSubdomain(name), len(validation.IsDNS1123Subdomain(name)) == 0; got != want {
			t.Errorf("%.20q is valid: %t, for Kubernetes: %t", name, got, want)
		}
	}
}

// FuzzLabels compares with Kubernetes' own validation: all labels are valid and unique, and depend on the names alone.
func FuzzLabels(f *testing.F) {
	f.Add("dev", "Dev", "DEV")
	f.Add("", "ä", strings.Repeat("x", 64))
	f.Add("a#", "A", "a-")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		names := []string{a, b, c}
		got := labels(names)
		seen := map[string]string{}
		for _, name := range names {
			label, ok := got[name]
			if name == "" {
				continue
			}
			if !ok || len(validation.IsDNS1123Label(label)) > 0 {
				t.Errorf("%q became %q", name, label)
			}
			if valid := len(validation.IsDNS1123Label(name)) == 0; valid && label != name {
				t.Errorf("the valid name %q became %q", name, label)
			}
			if other, taken := seen[label]; taken && other != name {
				t.Errorf("%q and %q both became %q", name, other, label)
			}
			seen[label] = name
		}
		for name, label := range labels(names) {
			if got[name] != label {
				t.Errorf("%q became %q, then %q", name, got[name], label)
			}
		}
	})
}
