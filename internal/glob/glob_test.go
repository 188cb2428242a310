package glob

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestDeniedGlobsMatchWithAllThatIsBelow(t *testing.T) {
	t.Parallel()
	denied, err := Denied([]string{".git", "/workspace/secrets/", "*.pem", "/etc/**", "a/b"})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"/w/.git": true, "/w/.git/config": true, "/w/.GIT/config": true, "/w/x.git": false, "/w/.gitignore": false,
		"/workspace/secrets": true, "/workspace/secrets/a/b": true, "/x/workspace/secrets": false, "/workspace/secrets2": false,
		"/w/a.pem": true, "/w/a.PEM/x": true, "/w/pem": false, "/etc": true, "/etc/a/b": true, "/w/etc/a": false,
		"/a/b": true, "/x/a/b/c": true, "/a/c/b": false,
	} {
		if got := denied.MatchString(path); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
	if none, err := Denied(nil); none != nil || err != nil {
		t.Errorf("without globs: %v, %v", none, err)
	}
}

func TestWhatIsNoGlobIsNamed(t *testing.T) {
	t.Parallel()
	for _, glob := range []string{"", "/", "[", "a{b", "b}", `\`, "\xff", strings.Repeat("{", 9) + strings.Repeat("}", 9)} {
		_, err := Denied([]string{"ok", glob})
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("%q: ", glob)) {
			t.Errorf("%q: %v", glob, err)
		}
	}
}

func TestGlobsThatDenyNothingAreRefused(t *testing.T) {
	t.Parallel()
	for _, glob := range []string{
		"./secret", "/w/./secret", "/w//secret", "secret/.", "secret//", "//secret", "x/../secret", "{/w/secret,/w/other}", ".", "..",
		"/..", "a/{b,.}", "a/{b,./c}", "{a/,b}/c", "{a/,b}", "{,a}/b", "a/{,b}", `\./a`, `a/\.\.`, "a{/,b}/c", ".{,x}", "a/.{.,x}/b", "**//a",
		"a/**//b", "{.,a}/**",
	} {
		if _, err := Denied([]string{glob}); !errors.Is(err, errNames) {
			t.Errorf("%q: %v", glob, err)
		}
	}
	for _, glob := range []string{
		"secret", "/w/secret/", "{a,b}", "/{a,b}/", "{a,b/c}/d", ".git", "..x", "...", "{,a/}b", "{a/,}b", "a{,/b}", "a{/b,.c}/d", "**/a", "a/**/",
		"[.]x", "a/{b,.c}", "*/.*", "{**/,}a", ".{a,b}", "a{.,}b",
	} {
		if _, err := Denied([]string{glob}); err != nil {
			t.Errorf("%q: %v", glob, err)
		}
	}
}

func TestDoubleStarsInBraces(t *testing.T) {
	t.Parallel()
	for glob, paths := range map[string]map[string]bool{
		"{secret/**,other}": {"/secret": true, "/x/secret/f": true, "/other": true, "/secrets": false, "/anothersecret": false},
		"a/{b/**,c}":        {"/a/b": true, "/a/b/c/d": true, "/a/c": true, "/a": false, "/a/bc": false},
		"{a/**,b}/c":        {"/a/c": true, "/a/x/y/c": true, "/b/c": true, "/b/x/c": false},
		"{x,{a,b}/**}":      {"/a": true, "/b/c": true, "/x": true, "/y": false},
		"secret{/**,.txt}":  {"/secret": true, "/secret/f": true, "/secret.txt": true, "/secrets": false},
	} {
		denied, err := Denied([]string{glob})
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range paths {
			if got := denied.MatchString(path); got != want {
				t.Errorf("%s: %s: %t", glob, path, got)
			}
		}
	}
}

func TestWhatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := Expression(strings.Repeat("*?", 1000)); err != nil {
		t.Error(err)
	}
	if _, err := Expression(strings.Repeat("*?", 4000)); err == nil {
		t.Error("a glob of 8,000 wildcards is translated")
	}
	long := strings.Repeat("a", 1000)
	var globs []string
	for range 60 {
		globs = append(globs, long)
	}
	if _, err := Denied(globs); err != nil {
		t.Error(err)
	}
	if _, err := Denied(append(globs, globs...)); err == nil {
		t.Error("120 globs of 1,000 bytes are compiled")
	}
}
