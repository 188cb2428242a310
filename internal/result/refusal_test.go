package result

import "testing"

func TestARefusalNamesThreeAndHowManyMore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		others []string
		isMore bool
		want   string
	}{
		{nil, false, ""},
		{[]string{"/a"}, false, ` 1 other address was refused too: "/a".`},
		{[]string{"/a", "/b"}, false, ` 2 other addresses were refused too: "/a" and "/b".`},
		{[]string{"/a", "/b", "/c"}, false, ` 3 other addresses were refused too, "/a" and "/b" among them: see status.x.`},
		{[]string{"/a"}, true, ` At least 1 other addresses were refused too, "/a" among them: see status.x.`},
	} {
		if got := OthersRefused("address", "status.x", c.others, c.isMore); got != c.want {
			t.Errorf("%v: got %q, want %q", c.others, got, c.want)
		}
	}
}

func TestARefusalIsInTheMessageOfWhatMayHaveEndedByIt(t *testing.T) {
	t.Parallel()
	for reason, message := range map[string]string{NonZeroExit: "It ended. No a. No b.", Completed: "It ended."} {
		o := &Outcome{Reason: reason, Message: "It ended."}
		for _, sentence := range []string{"No a.", "", "No b."} {
			o.AddRefusal(sentence, []string{NonZeroExit})
		}
		if o.Message != message || o.Refusal != "No a. No b." {
			t.Errorf("%s: %q, %q", reason, o.Message, o.Refusal)
		}
	}
}
