package console

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// What a page that shows hostile text must never use, whatever the browser would say to it; and what would keep a token.
var forbidden = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|setHTML|\beval\b|new Function|` +
	`\.srcdoc|createPolicy|localStorage|sessionStorage|indexedDB|\.cookie|window\.open|postMessage|importScripts|serviceWorker|https?://|//[a-z]+\.[a-z]`)

func TestThePagesFiles(t *testing.T) {
	t.Parallel()
	files := newPage()
	if len(files) < 15 {
		t.Errorf("there are %d files only", len(files))
	}
	for name, content := range files {
		text := string(content)
		if len(content) == 0 || name != "/" && types[path.Ext(name)] == "" {
			t.Errorf("%s has %d bytes, and the type %q", name, len(content), types[path.Ext(name)])
		}
		text = strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, "")
		if found := forbidden.FindString(text); found != "" {
			t.Errorf("%s has %q", name, found)
		}
		if strings.Contains(text, "<script>") || strings.Contains(text, "style=") || regexp.MustCompile(`<[^>]+\son[a-z]+=`).MatchString(text) {
			t.Errorf("%s has an inline script or style", name)
		}
	}
}

// Every name in the page's sources is there: a module that isn't would leave the page empty.
func TestThePagesModulesAreThere(t *testing.T) {
	t.Parallel()
	files := newPage()
	found := 0
	for name, content := range files {
		for _, match := range regexp.MustCompile(`(?:from '\.|src="|href="|fetch\(')(/[a-z]+\.[a-z]+)`).FindAllStringSubmatch(string(content), -1) {
			found++
			if files[match[1]] == nil {
				t.Errorf("%s names %s", name, match[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("%d names only: the test looks for the wrong thing", found)
	}
}
