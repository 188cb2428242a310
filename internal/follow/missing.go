package follow

import (
	"bytes"
	"strings"
)

// runnerPrefix begins a line that the runner wrote into the pod's log for itself, about its connection.
const runnerPrefix = "runner: "

// maxReadings bounds in how many ways at once a mixed log is taken apart.
const maxReadings = 256

// missing gives what a log did not show of two streams whose whole text is known. The log may mix them line by
// line, end anywhere, have a newline more than a stream that doesn't end in one, and hold lines of the runner. ok
// is false when the log isn't made of the two streams, so that nothing can be said.
//
// Where a line may have come from either, each way to read the log that fits is as good as another: what was
// shown and what is missing add up to both streams with nothing lost or twice.
func missing(log []byte, stdout, stderr string) (restOut, restErr string, ok bool) {
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

// reading is what is left of both streams in one way to read the log so far.
type reading struct{ out, err string }

// step takes one line of the log from either stream, in every way that is possible.
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

// take removes a line from the start of a stream. The log ends the last line of a stream with a newline, whether
// the stream does or not, and container runtimes drop a carriage return before a newline.
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
