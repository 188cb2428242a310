package convert

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Severity is how much a remark matters.
type Severity string

// Severities.
const (
	// SeverityNote says what was taken and what it means.
	SeverityNote Severity = "note"
	// SeverityWarning says that something was changed or left out.
	SeverityWarning Severity = "warning"
	// SeverityError says why there are no manifests.
	SeverityError Severity = "error"
)

// Remark is one thing that the user should know.
type Remark struct {
	Severity Severity
	// Where in the document, e.g. environments[1].cwd.
	Where string
	Text  string
}

func (r Remark) String() string {
	return fmt.Sprintf("%s: %s: %s", r.Severity, r.Where, r.Text)
}

// maxRemarks keeps a document of nothing but mistakes from flooding the terminal.
const maxRemarks = 200

// ErrNotConverted says that at least one remark is an error.
var ErrNotConverted = errors.New("nothing was converted: see the errors above")

// report collects remarks.
type report struct {
	remarks []Remark
	omitted int
	failed  bool
}

func (r *report) add(severity Severity, at *place, format string, args ...any) {
	r.failed = r.failed || severity == SeverityError
	if len(r.remarks) >= maxRemarks {
		r.omitted++
		return
	}
	r.remarks = append(r.remarks, Remark{Severity: severity, Where: at.String(), Text: fmt.Sprintf(format, args...)})
}

func (r *report) note(at *place, format string, args ...any) {
	r.add(SeverityNote, at, format, args...)
}

func (r *report) warn(at *place, format string, args ...any) {
	r.add(SeverityWarning, at, format, args...)
}

func (r *report) fail(at *place, format string, args ...any) {
	r.add(SeverityError, at, format, args...)
}

// finish gives the remarks with the errors last, where a person looks first.
func (r *report) finish() []Remark {
	rank := map[Severity]int{SeverityNote: 0, SeverityWarning: 1, SeverityError: 2}
	slices.SortStableFunc(r.remarks, func(a, b Remark) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	if r.omitted > 0 {
		severity := SeverityWarning
		if r.failed {
			severity = SeverityError
		}
		r.remarks = append(r.remarks, Remark{severity, topLevel, fmt.Sprintf("%d more remarks were left out", r.omitted)})
	}
	return r.remarks
}
