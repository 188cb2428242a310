package guards

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

func (w *walker) redirect(redirect *syntax.Redirect) *refusal {
	if refused := w.redirected(redirect); refused != nil {
		return refused
	}
	switch redirect.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		return w.hereDocument(redirect)
	case syntax.DplIn, syntax.DplOut:
		return w.duplicated(redirect)
	case syntax.RdrOut, syntax.AppOut, syntax.RdrIn, syntax.RdrInOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll, syntax.WordHdoc:
	default:
		return w.refuseAt(redirect, "the redirection "+quote(w.sourceOf(redirect))+" is not one of bash", "use <, > or >>")
	}
	return w.word(redirect.Word)
}

// duplicated checks the target of <& and >&. Bash expands the target, takes anything but a number for the name of a file,
// and expands that again. It ends >&- after the hyphen, and takes what follows for a command.
func (w *walker) duplicated(redirect *syntax.Redirect) *refusal {
	target := w.read(redirect.Word)
	switch {
	case target.known && target.text == "-", target.numbers, target.known && safeText(redirect.Word) != "":
		return w.word(redirect.Word)
	}
	return w.refuseAt(redirect, "bash expands the target of "+quote(w.sourceOf(redirect))+" twice, or takes a part of it for a command", "write a number, or use > for a file")
}

// redirected checks the file descriptor before a redirection: a number, or a variable that bash sets to one.
func (w *walker) redirected(redirect *syntax.Redirect) *refusal {
	if redirect.N == nil {
		return nil
	}
	name, braced := strings.CutPrefix(redirect.N.Value, "{")
	name, closed := strings.CutSuffix(name, "}")
	if braced && closed {
		return w.assignable(redirect, name)
	}
	if strings.Trim(redirect.N.Value, "0123456789") != "" {
		return w.refuseAt(redirect, "the file descriptor "+quote(redirect.N.Value)+" can't be checked", "use a number")
	}
	return nil
}

// hereDocument checks what a here-document expands. Its delimiter must be plain, so that every version of bash and the
// parser agree on the last line.
func (w *walker) hereDocument(redirect *syntax.Redirect) *refusal {
	delimiter := w.read(redirect.Word)
	if !delimiter.known || strings.Trim(delimiter.text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || delimiter.text == "" {
		return w.refuseAt(redirect, "the here-document's delimiter "+quote(delimiter.source)+" is not plain", "use a word like EOF")
	}
	if redirect.Word.Lit() != delimiter.text || redirect.Hdoc == nil {
		return nil
	}
	if strings.Contains(w.sourceOf(redirect.Hdoc), "\\\n") {
		return w.refuseAt(redirect, "a line of the here-document ends in a backslash", "quote the delimiter, as in <<'EOF', or join the lines")
	}
	for _, part := range redirect.Hdoc.Parts {
		if refused := w.part(part, true); refused != nil {
			return refused
		}
	}
	return nil
}
