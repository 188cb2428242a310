package result

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRedactionsAreCountedByNameAndStream(t *testing.T) {
	t.Parallel()
	o := &Outcome{}
	for _, r := range []Redaction{{"A", RedactedStdout, 1}, {"A", RedactedStdout, 2}, {"A", RedactedStderr, 1}, {"B", RedactedMessage, 0}} {
		o.AddRedaction(r)
	}
	if diff := cmp.Diff(Redactions{{"A", RedactedStdout, 3}, {"A", RedactedStderr, 1}}, o.Redactions); diff != "" {
		t.Error(diff)
	}
	for i := range 2 * MaxRedactions {
		o.AddRedaction(Redaction{fmt.Sprintf("N%d", i), RedactedStdout, 1})
	}
	if len(o.Redactions) != MaxRedactions {
		t.Errorf("there are %d", len(o.Redactions))
	}
}

func TestARedactionHasTheNameOfAnyVariable(t *testing.T) {
	t.Parallel()
	// The API allows as many characters.
	if r := (Redaction{strings.Repeat("N", 256), RedactedStdout, 1}); !r.isValid() {
		t.Error("it is refused")
	}
}

func TestRedactionsThatNoRunnerCountsAreRefused(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]Redaction{
		"of nothing":                {"", RedactedStdout, 1},
		"of what is no variable":    {"a\x1b[2J", RedactedStdout, 1},
		"with a name that's long":   {strings.Repeat("N", MaxRedactionName+1), RedactedStdout, 1},
		"in a stream of its own":    {"A", "Stdin", 1},
		"of none":                   {"A", RedactedStdout, 0},
		"of less than none":         {"A", RedactedStdout, -1},
		"in the name's other order": {RedactedStdout, "A", 1},
	} {
		o := &Outcome{Reason: Completed, Started: true, ExitCode: Exit(0), Redactions: Redactions{r}}
		if o.Validate() == nil {
			t.Errorf("redactions %s pass", name)
		}
	}
	var o Outcome
	if err := json.Unmarshal([]byte(`{"redactions":[`+strings.Repeat("{},", 5000)+`{}]}`), &o); err != nil || len(o.Redactions) != MaxList+1 {
		t.Errorf("read %d, %v", len(o.Redactions), err)
	}
}
