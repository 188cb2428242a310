package full

import "testing"

func TestOnlySkipsUnlessTheVariableIsSet(t *testing.T) {
	for _, test := range []struct {
		value string
		skips bool
	}{
		{"", true},
		{"0", true},
		{"1", false},
	} {
		t.Setenv("TOOLCALL_FULL", test.value)
		skipped := true
		t.Run("value "+test.value, func(t *testing.T) {
			defer func() { skipped = t.Skipped() }()
			Only(t, "a test of the skip")
		})
		if skipped != test.skips {
			t.Errorf("TOOLCALL_FULL=%q: skipped is %t", test.value, skipped)
		}
	}
}
