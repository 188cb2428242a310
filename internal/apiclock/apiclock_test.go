package apiclock

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

var _ clock.PassiveClock = (*Clock)(nil)

// machine is a wall clock that can be set, over the monotonic one of a synctest bubble.
func machine(off *time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(*off) }
}

func TestTheClockFollowsTheAPIServer(t *testing.T) {
	for name, off := range map[string]time.Duration{
		"that agrees": 0, "an hour behind": -time.Hour, "an hour ahead": time.Hour, "a day ahead": 24 * time.Hour,
		"hardly ahead": 3 * time.Second,
	} {
		t.Run("for a machine "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(machine(&off))
				if got := time.Until(c.Now()); got != off {
					t.Errorf("before any answer it is %s off, not the machine's %s", got, off)
				}
				for range 50 {
					sent := c.now()
					time.Sleep(7 * time.Millisecond)
					date := time.Now().Truncate(time.Second)
					time.Sleep(13 * time.Millisecond)
					c.observe(sent, c.now(), date)
					time.Sleep(171 * time.Millisecond)
				}
				if got := time.Until(c.Now()).Abs(); got > granularity {
					t.Errorf("after 50 answers it is %s off", got)
				}
				if off == 0 && c.offset != 0 {
					t.Errorf("clocks that agree are taken to differ by %s", c.offset)
				}
			})
		})
	}
}

func TestASlowAnswerSaysLittleAndNothingFalse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(time.Now)
		sent := c.now()
		date := time.Now().Truncate(time.Second)
		time.Sleep(time.Hour)
		c.observe(sent, c.now(), date)
		if c.offset != 0 {
			t.Errorf("an answer that took an hour moved the clock by %s", c.offset)
		}
	})
}

// Readings of time.Now carry the monotonic clock, and their difference is measured by that.
func TestAStepOfTheWallClockChangesNothing(t *testing.T) {
	start := time.Now()
	reading := start
	c := New(func() time.Time { return reading })
	reading = start.Add(5 * time.Second)
	if got := c.Now().Sub(start.Round(0)); got != 5*time.Second {
		t.Errorf("after 5 s it says that %s have passed", got)
	}
	if got := c.Now(); got != got.Round(0) {
		t.Error("what it says carries a monotonic reading, which would be compared instead of the time")
	}
}

func TestAnswersOfARealServerAreRead(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]string{"a date": "set by the server", "no date": "", "an absurd date": "yesterday"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				switch header {
				case "":
					w.Header()["Date"] = nil
				case "yesterday":
					w.Header().Set("Date", header)
				}
			}))
			t.Cleanup(server.Close)
			off := -time.Hour
			c := New(machine(&off))
			response, err := (&http.Client{Transport: c.Wrap(http.DefaultTransport)}).Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			want := off
			if name == "a date" {
				want = 0
			}
			if got := time.Until(c.Now()); (got - want).Abs() > 5*time.Second {
				t.Errorf("after the answer it is %s off, not %s", got, want)
			}
		})
	}
}

func TestAFailedRequestIsPassedOn(t *testing.T) {
	t.Parallel()
	c := New(time.Now)
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	response, err := (&http.Client{Transport: c.Wrap(http.DefaultTransport)}).Get(server.URL)
	if err == nil {
		response.Body.Close()
		t.Fatal("a server that is gone answered")
	}
	if c.offset != 0 {
		t.Errorf("it moved the clock by %s", c.offset)
	}
}
