package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// rows waits until the list has calls with these names, in this order.
func (p *page) rows(names string) {
	p.t.Helper()
	p.await("[...document.querySelectorAll('tbody tr[data-call]')].map((r) => r.dataset.call).join(' ') === " + quote(names))
}

// enter types a text into a field, in place of what it has.
func (p *page) enter(selector, text string) {
	p.t.Helper()
	p.eval(fmt.Sprintf("(() => { const i = document.querySelector(%s); i.focus(); i.select(); })()", quote(selector)), nil)
	p.do("Input.insertText", params{"text": text}, nil)
}

func (p *page) press(key string) {
	p.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		p.do("Input.dispatchKeyEvent", params{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": map[string]int{"Enter": 13, "Tab": 9}[key], "text": map[string]string{"Enter": "\r"}[key]}, nil)
	}
}

func TestCallsAreFound(t *testing.T) {
	f := newFixture(t)
	f.showcase()
	p := f.open("/")
	p.signIn(f.viewer(), f.namespace)
	p.awaitText("#state", "12 calls, live.")
	// By outcome.
	p.eval("document.querySelector('[data-outcome=failed]').click()", nil)
	p.awaitText("#state", "2 of 12 calls, live.")
	p.awaitText("[data-outcome=succeeded] .number", "5")
	// By text too, and then by nothing.
	p.enter("#search", "TEAM=web report")
	p.rows("query-sales")
	p.click("Clear filters")
	p.awaitText("#state", "12 calls, live.")
	// By a field.
	p.eval("(() => { const s = document.querySelector('#by-requester'); s.value = 'jane@example.com'; s.dispatchEvent(new Event('change')); })()", nil)
	p.rows("train-model watch-logs")
	// A reader who comes back from a call finds the list as it was.
	p.eval("document.querySelector('[data-call=watch-logs] a').click()", nil)
	p.awaitText("#outcome h1", "Running for")
	p.eval("history.back()", nil)
	p.rows("train-model watch-logs")
	p.click("Clear filters")
	// In another order, and not by sessions.
	p.click("Group sessions")
	p.click("Duration")
	p.await("document.querySelector('tbody tr').dataset.call === 'query-again' && document.querySelector('[aria-sort=descending]').textContent === 'Duration'")
	p.click("Duration")
	p.await("document.querySelector('[aria-sort=ascending]')")
	p.click("Group sessions")
	// A session is one group, which can be folded, and has a page.
	p.await("document.querySelectorAll('tr.group').length === 2")
	p.awaitText("tr[data-session=fix-login]", "4 succeeded")
	p.await("document.querySelectorAll('tr[data-session=fix-login] .piece').length === 7")
	p.click("Session weekly-report")
	p.await("!document.querySelector('[data-call=query-sales]') && document.querySelector('[data-call=build-web]')")
	p.show("#/sessions/" + f.namespace + "/weekly-report")
	p.awaitText("#state", "2 calls, live.")
	p.rows("query-again query-sales")
}

// A list is used with the keyboard alone.
func TestTheListByKeyboard(t *testing.T) {
	f := newFixture(t)
	f.create("first", "true")
	p := f.open("/")
	p.signIn(f.viewer(), f.namespace)
	p.awaitRow("first", "Waiting")
	for range 40 {
		p.press("Tab")
		is := false
		p.eval("document.activeElement.closest('[data-call]') !== null", &is)
		if is {
			p.press("Enter")
			p.awaitText("#outcome h1", "Waiting")
			return
		}
	}
	t.Error("no key gets to the call")
}

// rowOfMany is a row of manyCalls.
func rowOfMany(i int) any {
	name := fmt.Sprintf("call-%04d", i)
	return map[string]any{
		"cells": []any{name, "Succeeded", "Completed", 0, 1500 + i, ""},
		"object": map[string]any{"metadata": map[string]any{
			"uid": name, "name": name, "namespace": "many", "creationTimestamp": fmt.Sprintf("2026-01-01T%02d:%02d:%02dZ", i/3600, i/60%60, i%60),
		}},
	}
}

// manyCalls answers lists of calls with a table of 2,000, or of one for a session. By a watch, there is one more, and another is gone.
func manyCalls(w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasSuffix(r.URL.Path, "/toolcalls") {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Has("watch") {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": map[string]any{"kind": "Table", "rows": []any{rowOfMany(2000)}}})
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "DELETED", "object": map[string]any{"kind": "Table", "rows": []any{rowOfMany(1999)}}})
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	}
	type column struct {
		Name string `json:"name"`
	}
	rows := make([]any, 2000)
	for i := range rows {
		rows[i] = rowOfMany(i)
	}
	if r.URL.Query().Get("fieldSelector") == "spec.sessionRef.name=last" {
		rows = []any{rowOfMany(3000)}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "Table", "metadata": map[string]any{"resourceVersion": "1"}, "rows": rows,
		"columnDefinitions": []column{{"Name"}, {"Phase"}, {"Reason"}, {"Exit"}, {"Duration-MS"}, {"Session"}},
	})
	return true
}

// Of a long list, the page makes what its reader gets to.
func TestAListOfManyCalls(t *testing.T) {
	f := newFixture(t, manyCalls)
	p := f.open("/")
	p.signIn(f.viewer(), f.namespace)
	p.awaitText("#state", "1999 calls, live. There are more: use kubectl toolcall get.")
	p.await("document.querySelector('tbody tr').dataset.call === 'call-2000'")
	if n := p.count("tbody tr"); n > 400 {
		t.Errorf("%d rows are made at once", n)
	}
	before := p.count("tbody tr")
	p.await("(window.scrollTo(0, document.body.scrollHeight), document.querySelectorAll('tbody tr').length > " + fmt.Sprint(before) + ")")
	p.enter("#search", "call-0007")
	p.rows("call-0007")
	// The calls of a session are asked for by its name, as they may be behind those.
	p.show("#/sessions/many/last")
	p.await("document.querySelector('[data-call=call-3000]')")
}
