package result

import (
	"fmt"
	"strings"
	"time"
)

// Output is one text for a model: stdout, then stderr on a line of its own, then how the process ended and
// how long it took. exitCode is nil when the process has none.
//
// One newline separates stdout from stderr, whatever stdout ends in. One blank line precedes each of the
// closing lines: after an output that ends in a newline, one more newline makes it.
func Output(stdout, stderr string, exitCode *int32, took time.Duration) string {
	body := join(stdout, stderr)
	if exitCode != nil && *exitCode != 0 {
		body = paragraph(body, fmt.Sprintf("Command exited with code %d", *exitCode))
	}
	return paragraph(body, Took(took))
}

func join(stdout, stderr string) string {
	switch {
	case stdout == "" && stderr == "":
		return "(no output)"
	case stderr == "":
		return stdout
	case stdout == "":
		return stderr
	default:
		return stdout + "\n" + stderr
	}
}

// paragraph adds a line after a blank one.
func paragraph(body, line string) string {
	if strings.HasSuffix(body, "\n") {
		return body + "\n" + line
	}
	return body + "\n\n" + line
}

// Took says how long something took: "Took 1.5s" or "Took 2m 5.0s". It rounds to a tenth of a second before
// it splits off the minutes, so that 59.96 s is "1m 0.0s", not "60.0s".
func Took(d time.Duration) string {
	tenths := int64(max(d, 0).Round(100*time.Millisecond) / (100 * time.Millisecond))
	minutes, rest := tenths/600, tenths%600
	if minutes == 0 {
		return fmt.Sprintf("Took %d.%ds", rest/10, rest%10)
	}
	return fmt.Sprintf("Took %dm %d.%ds", minutes, rest/10, rest%10)
}
