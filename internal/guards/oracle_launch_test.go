package guards

import (
	"os/exec"
	"strings"
	"testing"
)

func fromTokens(tokens []string, picks []byte) string {
	var text strings.Builder
	for _, pick := range picks[:min(len(picks), 40)] {
		text.WriteString(tokens[int(pick)%len(tokens)])
	}
	return text.String()
}

// FuzzSed asks GNU sed itself: in its sandbox it refuses scripts that use e, r or w, before it runs anything.
func FuzzSed(f *testing.F) {
	sed, err := exec.LookPath("sed")
	if err != nil || exec.Command(sed, "--sandbox", "p", "/dev/null").Run() != nil {
		f.Skip("no GNU sed here")
	}
	for _, words := range launchCalls(deniedLaunches + allowedLaunches) {
		if words[0] == "sed" && len(words) == 2 {
			f.Add([]byte(nil), words[1])
		}
	}
	tokens := []string{
		"e", "e id", "s", "/", "x", "id", "y", "p", "d", "n", "a", "i", "c", "b", "t", ":", "l", "q", "{", "}", ";", "\n", " ", "\\", ",", "|", "#", "$", "!", "1", "~", "+", "[", "]", "^", "*", "[:alpha:]", "g", "I", "M", "m", "=", "s/x/y/", "s,a,b,", "/x/", "\\,x,", "a\\\n", "a text\n", ".", "z", "D", "&", "é",
	}
	policy := launchPolicy(f)
	f.Fuzz(func(t *testing.T, picks []byte, text string) {
		script := text + fromTokens(tokens, picks)
		if len(script) > 500 || strings.ContainsAny(script, "rRwW\x00") || checkCall(policy, []string{"sed", script}) != nil || strings.HasPrefix(script, "-") {
			return
		}
		output, _ := exec.Command(sed, "--sandbox", script, "/dev/null").CombinedOutput()
		if strings.Contains(string(output), "sandbox mode") {
			t.Errorf("allowed, and sed says that it runs commands: %q", script)
		}
	})
}

// FuzzAwk runs what the guard allows, with the system's awk and a marker in PATH.
func FuzzAwk(f *testing.F) {
	if _, err := exec.LookPath("awk"); err != nil {
		f.Skip("no awk here")
	}
	for _, words := range launchCalls(deniedLaunches + allowedLaunches) {
		if words[0] == "awk" && len(words) == 2 {
			f.Add([]byte(nil), words[1])
		}
	}
	tokens := []string{
		"BEGIN", "{", "}", "print", "\"id\"", "id", "|", "||", "|&", "getline", "system", "(", ")", "/", "\"", "\\", " ", "\n", ";", "$1", "x", "=", "1", "~", "!", ",", "#", "if", "while", "for", "in", "[", "]", "printf", ">", "<", "cmd=\"id\"", "close", "END", "&&", "+", "++", "/x/", "/\"/", "sh", "@",
	}
	policy := launchPolicy(f)
	oracle := newShellOracle(f, []string{"awk", "sh", "cat"})
	f.Fuzz(func(t *testing.T, picks []byte, text string) {
		program := text + fromTokens(tokens, picks)
		if len(program) > 500 || strings.ContainsAny(program, "'\x00") || strings.HasPrefix(program, "-") || checkCall(policy, []string{"awk", program}) != nil {
			return
		}
		if ran := oracle.run(t, "echo 'x y id' | awk '"+program+"'", nil); ran != "" {
			t.Errorf("allowed, and ran %s: %q", ran, program)
		}
	})
}
