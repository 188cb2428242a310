package console

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/output"
)

// longOutput is 4 MiB, with one line to be found.
func longOutput() []byte {
	var all bytes.Buffer
	for i := range 64 << 10 {
		fmt.Fprintf(&all, "\x1b[32mline %05d\x1b[0m of a long stream, with some more text in it\n", i)
		if i == 20_000 {
			fmt.Fprintln(&all, "a nee\x1b[1mdle in it")
		}
	}
	return all.Bytes()
}

// A long stream is read by ranges: a part of it is in the page, and any other on request.
func TestLongOutput(t *testing.T) {
	f := newFixture(t)
	call := f.create("long", "make all")
	stdout := outputs.Add(call, output.Stdout)
	_, _ = stdout.Write(longOutput())
	stdout.Finish()
	outputs.Add(call, output.Stderr).Finish()
	f.report(call, succeeded())
	p := f.open("/#/call/" + f.namespace + "/long")
	p.signIn(f.viewer(), f.namespace)
	p.awaitText("#stdout", "line 65535")
	p.await("document.querySelector('#stdout').scrollTop > 1000")
	first := func() (line int) {
		p.eval("Number(document.querySelector('#stdout').textContent.slice(5, 10))", &line)
		return line
	}
	// Who scrolls up reads what is before, again and again; the page doesn't grow.
	for range 12 {
		before := first()
		p.eval("document.querySelector('#stdout').scrollTop = 0", nil)
		p.await(fmt.Sprintf("Number(document.querySelector('#stdout').textContent.slice(5, 10)) < %d", before))
	}
	if text := p.text("#stdout"); len(text) > 1<<20 || strings.Contains(text, "line 65535") {
		t.Errorf("the page has %d bytes", len(text))
	}
	p.click("Beginning")
	p.await("document.querySelector('#stdout').textContent.startsWith('line 00000 of')")
	p.await("(() => { const b = document.querySelector('#stdout'); b.scrollTop = b.scrollHeight; return b.textContent.includes('line 10000'); })()")
	if text := p.text("#stdout"); strings.Contains(text, "line 00000") {
		t.Error("the page keeps the beginning")
	}
	// A text is found wherever it is, and whatever its colours.
	p.enter("#find", "NEEDLE IN")
	p.press("Enter")
	p.awaitText("#output [role=status]", "1 of 1")
	p.await("[...CSS.highlights.get('found')][0].toString() === 'needle in'")
	p.await("(() => { const r = [...CSS.highlights.get('found')][0].getBoundingClientRect(), b = document.querySelector('#stdout').getBoundingClientRect(); return r.top > b.top && r.bottom < b.bottom; })()")
	p.click("End")
	p.awaitText("#stdout", "line 65535")
	p.enter("#find", "not there")
	p.press("Enter")
	p.awaitText("#output [role=status]", "Not found.")
}

// What the status has in order is shown so, and control characters on request.
func TestOutputInOrder(t *testing.T) {
	f := newFixture(t)
	call := f.create("both", "make all")
	for which, text := range map[output.Stream]string{output.Stdout: "one\x1b[31mred\n", output.Stderr: "two\n"} {
		stream := outputs.Add(call, which)
		fmt.Fprint(stream, text)
		stream.Finish()
	}
	status := succeeded()
	status.Output = "one\ntwo\nred\n"
	f.report(call, status)
	p := f.open("/#/call/" + f.namespace + "/both")
	p.signIn(f.viewer(), f.namespace)
	p.awaitText("#stdout .t-fg1", "red")
	p.click("Control characters")
	p.await(`document.querySelector('#stdout').textContent === 'one^[[31mred\n'`)
	p.click("In order")
	p.await(`document.querySelector('#merged').textContent === 'one\ntwo\nred\n' && !document.querySelector('#stderr')`)
	p.enter("#find", "two")
	p.press("Enter")
	p.awaitText("#output [role=status]", "1 of 1")
	p.click("In order")
	p.await(`document.querySelector('#stderr').textContent === 'two\n'`)
}
