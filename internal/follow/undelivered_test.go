package follow

import (
	"strings"
	"testing"
)

func TestUndelivered(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, log, stdout, stderr string
		restOut, restErr          string
		ok                        bool
	}{
		{"nothing was shown", "", "a\n", "b\n", "a\n", "b\n", true},
		{"all was shown", "a\nb\n", "a\n", "b\n", "", "", true},
		{"the start of one stream was shown", "a\n", "a\nc\n", "", "c\n", "", true},
		{"half a line was shown", "a", "abc\n", "", "bc\n", "", true},
		{"both streams were mixed", "1\nA\n2\n", "1\n2\n3\n", "A\nB\n", "3\n", "B\n", true},
		{"the same line stands in both", "x\n", "x\nx\n", "x\n", "x\n", "x\n", true},
		{"the last line has no newline but the log's", "a\nb\n", "a\nb", "", "", "", true},
		{"the last line without newline wasn't shown", "a\n", "a\nb", "", "b", "", true},
		{"the runner wrote something", "a\nrunner: connection to the operator: EOF\nb\n", "a\nb\nc\n", "", "c\n", "", true},
		{"the command wrote what looks like the runner's", "runner: x\n", "runner: x\n", "", "", "", true},
		{"the log is of something else", "z\n", "a\n", "b\n", "", "", false},
		{"the log is longer", "a\na\n", "a\n", "", "", "", false},
		{"the runtime dropped carriage returns", "a\nb\n", "a\r\nb\r\nc\r\n", "", "c\r\n", "", true},
		{"a line of a carriage return alone", "\nx\n", "\r\nx\ny", "", "y", "", true},
		{"carriage returns within a line", "1%\r2%\n", "1%\r2%\r\n3", "", "3", "", true},
		{"empty lines", "\n\n", "\n\n\n", "", "\n", "", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			restOut, restErr, ok := undelivered([]byte(c.log), c.stdout, c.stderr)
			if restOut != c.restOut || restErr != c.restErr || ok != c.ok {
				t.Errorf("got %q, %q, %t", restOut, restErr, ok)
			}
		})
	}
}

// Streams with the same line throughout have as many readings as lines: the work is bounded.
func TestUndeliveredIsBoundedOnEqualStreams(t *testing.T) {
	t.Parallel()
	same := strings.Repeat("same\n", 10000)
	if _, _, ok := undelivered([]byte(same), same, same); ok {
		t.Error("10000 readings were followed")
	}
	few := strings.Repeat("same\n", 100)
	restOut, restErr, ok := undelivered([]byte(few), few, few)
	if !ok || len(restOut)+len(restErr) != len(few) {
		t.Errorf("got %d and %d bytes, %t", len(restOut), len(restErr), ok)
	}
}

// FuzzUndelivered mixes two streams line by line, cuts the result anywhere, and expects both streams back.
func FuzzUndelivered(f *testing.F) {
	f.Add("a\nb\nc", "a\n\nd\n", []byte{1, 0, 1}, 4)
	f.Add("", "x", []byte{0}, 1)
	f.Add("x\r\n", "x\n", []byte{1}, 2)
	f.Fuzz(func(t *testing.T, stdout, stderr string, choice []byte, cut int) {
		if len(stdout)+len(stderr) > 200 {
			return
		}
		log := mix(stdout, stderr, choice)
		log = log[:max(0, min(cut, len(log)))]
		restOut, restErr, ok := undelivered([]byte(log), stdout, stderr)
		if !ok {
			t.Fatalf("%q isn't taken for a mix of %q and %q", log, stdout, stderr)
		}
		if !strings.HasSuffix(stdout, restOut) || !strings.HasSuffix(stderr, restErr) {
			t.Errorf("%q and %q aren't ends of %q and %q", restOut, restErr, stdout, stderr)
		}
		dropped := strings.Count(stdout+stderr, "\r\n")
		if shown := len(stdout) + len(stderr) - len(restOut) - len(restErr); shown > len(log)+dropped || shown < len(log)-2 {
			t.Errorf("%d bytes count as shown, the log has %d", shown, len(log))
		}
	})
}

func mix(stdout, stderr string, choice []byte) string {
	var log strings.Builder
	streams := [2][]string{strings.SplitAfter(stdout, "\n"), strings.SplitAfter(stderr, "\n")}
	for i := 0; len(streams[0])+len(streams[1]) > 0; i++ {
		from := 0
		if len(choice) > 0 {
			from = int(choice[i%len(choice)] % 2)
		}
		if len(streams[from]) == 0 {
			from = 1 - from
		}
		line := streams[from][0]
		streams[from] = streams[from][1:]
		log.WriteString(line)
		if line != "" && !strings.HasSuffix(line, "\n") {
			log.WriteByte('\n')
		}
	}
	return log.String()
}
