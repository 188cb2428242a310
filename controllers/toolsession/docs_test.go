package toolsession

import (
	"testing"

	"toolcall.dev/operator/internal/stagedoc"
)

func TestTheStagesAreDocumented(t *testing.T) {
	t.Parallel()
	var rows []stagedoc.Row[Stage]
	for _, row := range Table() {
		rows = append(rows, stagedoc.Row[Stage]{Stage: row.Stage, When: row.When, Does: row.Does, Next: row.Next})
	}
	stagedoc.Check(t, "docs/sessions.md", rows)
}
