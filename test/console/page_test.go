package console

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// recorder runs in every document before its own scripts: it keeps violations of the document's policy.
const recorder = `window.violations = [];
document.addEventListener('securitypolicyviolation', (e) => window.violations.push(e.effectiveDirective + ' ' + e.blockedURI));`

// page is an open page. Close fails the test for what shouldn't have happened in it.
type page struct {
	t                *testing.T
	session, context string
	base             string
	downloads        string
	provoked         bool

	mu       sync.Mutex
	recorded []string
	requests []string
}

// open opens a page of the console, in a browser profile of its own.
func (f *fixture) open(path string) *page {
	f.t.Helper()
	p := &page{t: f.t, base: f.console.URL, downloads: f.t.TempDir()}
	made := struct{ BrowserContextID string }{}
	p.browser("Target.createBrowserContext", nil, &made)
	p.context = made.BrowserContextID
	target := struct{ TargetID string }{}
	p.browser("Target.createTarget", params{"url": "about:blank", "browserContextId": p.context}, &target)
	attached := struct{ SessionID string }{}
	p.browser("Target.attachToTarget", params{"targetId": target.TargetID, "flatten": true}, &attached)
	p.session = attached.SessionID
	browser.mu.Lock()
	browser.pages[p.session] = p.record
	browser.mu.Unlock()
	p.browser("Browser.setDownloadBehavior", params{"behavior": "allow", "browserContextId": p.context, "downloadPath": p.downloads}, nil)
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		p.do(domain+".enable", nil, nil)
	}
	p.do("Page.addScriptToEvaluateOnNewDocument", params{"source": recorder}, nil)
	f.t.Cleanup(p.close)
	p.do("Page.navigate", params{"url": p.base + path}, nil)
	p.await(`document.readyState === 'complete' && document.querySelector('#token')`)
	return p
}

func (p *page) browser(method string, with params, into any) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	if err := browser.do(ctx, "", method, with, into); err != nil {
		p.t.Fatal(err)
	}
}

func (p *page) do(method string, with params, into any) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	if err := browser.do(ctx, p.session, method, with, into); err != nil {
		p.t.Fatal(err)
	}
}

// record keeps what the browser tells of the page.
func (p *page) record(method string, raw json.RawMessage) {
	e := struct {
		Request          struct{ URL string }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
		Message string
		Type    string
		Entry   struct{ Source, Level, Text, URL string }
	}{}
	if json.Unmarshal(raw, &e) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch method {
	case "Network.requestWillBeSent":
		p.requests = append(p.requests, e.Request.URL)
	case "Runtime.exceptionThrown":
		p.recorded = append(p.recorded, "exception: "+e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case "Page.javascriptDialogOpening":
		p.recorded = append(p.recorded, "dialog: "+e.Message)
	case "Runtime.consoleAPICalled":
		p.recorded = append(p.recorded, "console."+e.Type)
	case "Log.entryAdded":
		// Answers that are errors are part of some tests.
		if e.Entry.Source != "network" {
			p.recorded = append(p.recorded, "log: "+e.Entry.Text)
		}
	}
}

// eval evaluates an expression, or waits for the promise that it is, and decodes its value.
func (p *page) eval(expression string, into any) {
	p.t.Helper()
	if err := p.try(expression, into); err != nil {
		p.t.Fatal(err)
	}
}

func (p *page) try(expression string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	answer := struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}{}
	err := browser.do(ctx, p.session, "Runtime.evaluate", params{
		"expression": expression, "awaitPromise": true, "returnByValue": true, "allowUnsafeEvalBlockedByCSP": false,
	}, &answer)
	switch {
	case err != nil:
		return err
	case answer.ExceptionDetails != nil:
		return fmt.Errorf("%s: %s %s", expression, answer.ExceptionDetails.Text, answer.ExceptionDetails.Exception.Description)
	case into == nil || answer.Result.Value == nil:
		return nil
	default:
		return json.Unmarshal(answer.Result.Value, into)
	}
}

// await waits until an expression is true.
func (p *page) await(expression string) {
	p.t.Helper()
	deadline := time.Now().Add(testTimeout)
	for {
		is := false
		err := p.try("Boolean("+expression+")", &is)
		if is {
			return
		}
		if time.Now().After(deadline) {
			text := ""
			_ = p.try("document.body.innerText", &text)
			p.t.Fatalf("never true: %s (%v); the page shows:\n%.3000s", expression, err, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// awaitText waits until an element has a text.
func (p *page) awaitText(selector, text string) {
	p.t.Helper()
	p.await(fmt.Sprintf("document.querySelector(%s)?.textContent.includes(%s)", quote(selector), quote(text)))
}

// text is the text of an element; empty when there is none.
func (p *page) text(selector string) (text string) {
	p.t.Helper()
	p.eval(fmt.Sprintf("document.querySelector(%s)?.textContent ?? ''", quote(selector)), &text)
	return text
}

func (p *page) count(selector string) (n int) {
	p.t.Helper()
	p.eval(fmt.Sprintf("document.querySelectorAll(%s).length", quote(selector)), &n)
	return n
}

// click clicks the button with a text.
func (p *page) click(text string) {
	p.t.Helper()
	of := fmt.Sprintf("[...document.querySelectorAll('button')].find((b) => b.textContent.startsWith(%s))", quote(text))
	p.await(of)
	p.eval(of+".click()", nil)
}

// signIn gives the page a token, as a user types it.
func (p *page) signIn(token, namespace string) {
	p.t.Helper()
	for field, value := range map[string]string{"#token": token, "#namespace": namespace} {
		p.eval(fmt.Sprintf("(() => { const i = document.querySelector(%s); i.focus(); i.select(); })()", quote(field)), nil)
		if value == "" {
			p.eval(fmt.Sprintf("document.querySelector(%s).value = ''", quote(field)), nil)
			continue
		}
		p.do("Input.insertText", params{"text": value}, nil)
	}
	p.click("Show calls")
}

// requested says whether the page sent a request with a text in its address.
func (p *page) requested(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.requests, func(url string) bool { return strings.Contains(url, text) })
}

// show goes to another view.
func (p *page) show(hash string) {
	p.t.Helper()
	p.eval(fmt.Sprintf("location.hash = %s", quote(hash)), nil)
}

// close says what shouldn't have happened.
func (p *page) close() {
	var violations []string
	ran := false
	if err := p.try("window.violations", &violations); err != nil {
		p.t.Error(err)
	}
	_ = p.try("Boolean(window.pwned)", &ran)
	p.mu.Lock()
	if ran {
		p.t.Error("a script of a call ran")
	}
	if !p.provoked && len(violations)+len(p.recorded) > 0 {
		p.t.Errorf("violations: %q; recorded: %q", violations, p.recorded)
	}
	for _, url := range p.requests {
		if !strings.HasPrefix(url, p.base+"/") && !strings.HasPrefix(url, "blob:"+p.base+"/") && !p.provoked {
			p.t.Errorf("the page sent a request to %s", url)
		}
		if strings.Contains(url, "token") && !strings.HasPrefix(url, p.base+"/?") {
			p.t.Errorf("a token in %s", url)
		}
	}
	p.mu.Unlock()
	browser.mu.Lock()
	delete(browser.pages, p.session)
	browser.mu.Unlock()
	p.browser("Target.disposeBrowserContext", params{"browserContextId": p.context}, nil)
}

// quote makes a literal of JavaScript.
func quote(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(raw)
}
