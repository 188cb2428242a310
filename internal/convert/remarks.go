package convert

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Severity is the severity of a remark.
type Severity string

// Severities.
const (
	// SeverityNote is for what was converted and what it means.
	SeverityNote Severity = "note"
	// SeverityWarning is for what was changed or left out.
	SeverityWarning Severity = "warning"
	// SeverityError is for what prevents the conversion.
	SeverityError Severity = "error"
)

// Remark is a message to the user about one key.
type Remark struct {
	Severity Severity
	// Where in the document, e.g. environments[1].cwd.
	Where string
	Text  string
}

func (r Remark) String() string {
	return fmt.Sprintf("%s: %s: %s", r.Severity, r.Where, r.Text)
}

// maxRemarks bounds the remarks on one document.
const maxRemarks = 200

// ErrNotConverted means that at least one remark is an error.
var ErrNotConverted = errors.New("nothing was converted: see the errors above")

// report collects remarks.
type report struct {
	remarks []Remark
	omitted int
	failed  bool
}

func (r *report) add(severity Severity, at *location, format string, args ...any) {
	r.failed = r.failed || severity == SeverityError
	if len(r.remarks) >= maxRemarks {
		r.omitted++
		return
	}
	r.remarks = append(r.remarks, Remark{Severity: severity, Where: at.String(), Text: fmt.Sprintf(format, args...)})
}

func (r *report) note(at *location, format string, args ...any) {
	r.add(SeverityNote, at, format, args...)
}

func (r *report) warn(at *location, format string, args ...any) {
	r.add(SeverityWarning, at, format, args...)
}

func (r *report) fail(at *location, format string, args ...any) {
	r.add(SeverityError, at, format, args...)
}

// finish returns the remarks with the errors last, where users look first.
func (r *report) finish() []Remark {
	rank := map[Severity]int{SeverityNote: 0, SeverityWarning: 1, SeverityError: 2}
	slices.SortStableFunc(r.remarks, func(a, b Remark) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	if r.omitted > 0 {
		severity := SeverityWarning
		if r.failed {
			severity = SeverityError
		}
		r.remarks = append(r.remarks, Remark{severity, topLevel, fmt.Sprintf("%d more remarks are not shown", r.omitted)})
	}
	return r.remarks
}
