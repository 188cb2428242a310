package result

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Output is the text for a model about a process that was started: what it wrote, then how it ended, what was refused to it,
// what it left running, and how long it took. shown is what it wrote, as a Screen shows it, and message says how it ended.
func Output(o *Outcome, shown, message string) string {
	body := cmp.Or(shown, "(no output)")
	var lines []string
	switch {
	case o.ExitCode == nil:
		lines = append(lines, oneLine(message))
	case *o.ExitCode != 0:
		lines = append(lines, fmt.Sprintf("Command exited with code %d", *o.ExitCode))
	}
	// The message of a process that was stopped may say it already.
	if o.Refusal != "" && (o.ExitCode != nil || !strings.Contains(message, o.Refusal)) {
		lines = append(lines, oneLine(o.Refusal))
	}
	if line := o.LeftRunningLine(); line != "" {
		lines = append(lines, line)
	}
	if len(lines) > 0 {
		body = paragraph(body, strings.Join(lines, "\n"))
	}
	return paragraph(body, Took(time.Duration(o.DurationMS)*time.Millisecond))
}

// AddLine adds a line about the output to a text that Output made, before how long it took.
func AddLine(text, line string) string {
	body, end := cutTook(text)
	return paragraph(body, line) + end
}

// RemoveLine takes back a line that AddLine added.
func RemoveLine(text, line string) string {
	body, end := cutTook(text)
	return strings.TrimSuffix(strings.Replace(body, "\n"+line, "", 1), "\n") + end
}

// cutTook cuts a text before the blank line above how long it took.
func cutTook(text string) (body, end string) {
	at := max(strings.LastIndex(text, "\n\n"+took), 0)
	return text[:at], text[at:]
}

func oneLine(text string) string { return strings.ReplaceAll(text, "\n", " ") }

// Shown is what a terminal shows of both streams of a call, of at most limit bytes of each, and one line for what is left out on top. Of
// an outcome that doesn't say in which order they came, stdout is first. A stream that is binary is described.
func (o *Outcome) Shown(limit int, namespace, call string) string {
	if o.Output.Bytes > 0 && !o.Stdout.isBinary() && !o.Stderr.isBinary() {
		limit *= 2
		if !o.Stdout.Whole() || !o.Stderr.Whole() {
			// Not more than what is kept of both.
			limit = min(limit, o.Stdout.kept()+o.Stderr.kept())
		}
		text, _ := o.Output.Text(limit)
		return text
	}
	stdout, stderr := o.Stdout.shown(limit, namespace, call, "stdout"), o.Stderr.shown(limit, namespace, call, "stderr")
	if stdout != "" && stderr != "" && !strings.HasSuffix(stdout, "\n") {
		stdout += "\n"
	}
	return stdout + stderr
}

// paragraph adds a line after a blank one.
func paragraph(body, line string) string {
	if strings.HasSuffix(body, "\n") {
		return body + "\n" + line
	}
	return body + "\n\n" + line
}

const took = "Took "

// Took says how long something took: "Took 1.5s" or "Took 2m 5.0s". It rounds to a tenth of a second before it
// splits off the minutes, so that 59.96 s is "1m 0.0s", not "60.0s".
func Took(d time.Duration) string {
	tenths := int64(max(d, 0).Round(100*time.Millisecond) / (100 * time.Millisecond))
	minutes, rest := tenths/600, tenths%600
	if minutes == 0 {
		return fmt.Sprintf(took+"%d.%ds", rest/10, rest%10)
	}
	return fmt.Sprintf(took+"%dm %d.%ds", minutes, rest/10, rest%10)
}
