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
