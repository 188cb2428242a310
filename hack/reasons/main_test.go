package main

import (
	"strings"
	"testing"
)

func TestConstantsThatNothingCanBeWrittenFromAreRefused(t *testing.T) {
	t.Parallel()
	for constants, want := range map[string]string{
		"// ReasonA is one.\nReasonA = \"B\"":                                                              "must be",
		"// It is one.\nReasonA = \"A\"":                                                                   "needs a comment",
		"// ReasonA is one.\nReasonA = \"A\" //toolcall:class NotFound":                                    "no directive",
		"// ReasonA is one.\nReasonA = \"A\" //toolcall:error NotFound\n// ReasonB is.\nReasonB = \"B\"\n": "some don't",
		"// ReasonA is one.\nReasonA = \"A\" //toolcall:runner":                                            "",
	} {
		_, err := parse([]byte("package x\n\n// Reasons.\nconst (\n" + constants + "\n)\n"))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nerror %v, want %q", constants, err, want)
		}
	}
}

func TestTheConsoleSaysWhatThePageSays(t *testing.T) {
	t.Parallel()
	blocks := []block{{constants: []constant{{kind: "reason", value: "A"}, {kind: "condition", value: "B"}}}}
	const page = "# Page\n\n### A\n\n- Symptom: it is\n  `so`.\n- Command: `x`\n- Fix: [read](a.md#b), and\n  wait.\n- Without output: y\n\n### B\n\n- Symptom: no reason\n"
	got, err := console(blocks, page)
	if want := "{\n \"A\": {\n  \"symptom\": \"it is `so`.\",\n  \"fix\": \"read, and wait.\"\n }\n}\n"; err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := console(blocks, "### A\n\n- Symptom: it is.\n"); err == nil || !strings.Contains(err.Error(), "needs a symptom and a fix") {
		t.Errorf("%v for a section without a fix", err)
	}
}
