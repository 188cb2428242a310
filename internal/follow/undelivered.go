package follow

import (
	"bytes"
	"strings"
)

// runnerPrefix starts the lines that the runner itself writes to the log of the pod.
const runnerPrefix = "runner: "

// maxReadings bounds the number of interpretations of a mixed log.
const maxReadings = 256

// undelivered returns the parts of two streams, whose whole text is known, that a log doesn't have. The log can mix the
// streams line by line, end anywhere, add a newline to a stream that doesn't end in one, and have lines of the runner.
// ok is false if the log doesn't consist of the two streams.
//
// If a line can come from either stream, any interpretation that fits will do: the log and the undelivered parts
// together are both streams, with nothing lost or repeated.
func undelivered(log []byte, stdout, stderr string) (restOut, restErr string, ok bool) {
	readings := []reading{{stdout, stderr}}
	for len(log) > 0 {
		line, rest, whole := bytes.Cut(log, []byte("\n"))
		if whole {
			line = log[:len(line)+1]
		}
		log = rest
		next := step(readings, string(line))
		switch {
		case len(next) == 0 && strings.HasPrefix(string(line), runnerPrefix):
			continue
		case len(next) == 0 || len(next) > maxReadings:
			return "", "", false
		}
		readings = next
	}
	return readings[0].out, readings[0].err, true
}

// reading is the rest of both streams in one interpretation of the log so far.
type reading struct{ out, err string }

// step takes one line of the log from either stream, in every possible way.
func step(readings []reading, line string) []reading {
	next := make([]reading, 0, len(readings)+1)
	seen := map[int]bool{}
	for _, r := range readings {
		if rest, ok := take(r.out, line); ok && !seen[len(rest)] {
			seen[len(rest)] = true
			next = append(next, reading{rest, r.err})
		}
		if rest, ok := take(r.err, line); ok && !seen[len(r.out)] {
			seen[len(r.out)] = true
			next = append(next, reading{r.out, rest})
		}
	}
	return next
}

// take removes a line from the start of a stream. The log ends every line with a newline, even the last line of a stream
// that doesn't, and container runtimes drop a carriage return before a newline.
func take(stream, line string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(stream, line); ok {
		return rest, true
	}
	text, whole := strings.CutSuffix(line, "\n")
	if !whole {
		return "", false
	}
	if rest, ok = strings.CutPrefix(stream, text+"\r\n"); ok {
		return rest, true
	}
	return "", stream != "" && stream == text
}
