package apiclock

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/utils/clock"
)

var _ clock.PassiveClock = (*Clock)(nil)

// machine is a wall clock that is off by some time, over the monotonic one of a synctest bubble.
func machine(off *time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(*off) }
}

// answer has one request answered by a server whose clock is off.
func (c *Clock) answer(off time.Duration) {
	sent := c.now()
	time.Sleep(7 * time.Millisecond)
	date := time.Now().Add(off).Truncate(granularity)
	time.Sleep(13 * time.Millisecond)
	c.observe(sent, c.now(), date)
}

// error is how far the clock is from the true time.
func (c *Clock) error() time.Duration { return time.Until(c.Now()) }

// expect wants the clock off by some time, within the header's granularity.
func (c *Clock) expect(t *testing.T, want time.Duration, when string) {
	t.Helper()
	if got := c.error(); (got - want).Abs() > granularity {
		t.Fatalf("%s it is %s off, want %s", when, got, want)
	}
}

func TestTheClockFollowsTheAPIServer(t *testing.T) {
	for name, off := range map[string]time.Duration{
		"that agrees": 0, "an hour behind": -time.Hour, "an hour ahead": time.Hour, "a day ahead": 24 * time.Hour,
		"hardly ahead": 3 * time.Second,
	} {
		t.Run("for a machine "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(machine(&off), logr.Discard())
				if got := c.error(); got != off {
					t.Errorf("before any answer it is %s off, not the machine's %s", got, off)
				}
				c.answer(0)
				for range 500 {
					c.answer(0)
					c.expect(t, 0, "after two answers")
					time.Sleep(471 * time.Millisecond)
				}
				if off == 0 && c.offset != 0 {
					t.Errorf("clocks that agree are taken to differ by %s", c.offset)
				}
			})
		})
	}
}

// An operator whose own clock is right or an hour off, with one wrong API server of three behind a balancer that picks
// one for each request: over hours the clock is never wrong.
func TestAMinorityOfWrongAnswersChangesNothing(t *testing.T) {
	for name, own := range map[string]time.Duration{"right": 0, "an hour behind": -time.Hour} {
		for _, wrong := range []time.Duration{time.Hour, -10 * time.Second, 100 * 365 * 24 * time.Hour} {
			t.Run("own clock "+name+", one server off by "+wrong.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := New(machine(&own), logr.Discard())
					random := rand.New(rand.NewPCG(1, 2))
					// The window has to be filled from right servers first: see the package's comment.
					for range windowSize {
						c.answer(0)
						time.Sleep(spacing)
					}
					for end := time.Now().Add(2 * time.Hour); time.Now().Before(end); time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond) {
						if random.IntN(3) == 0 {
							c.answer(wrong)
						} else {
							c.answer(0)
						}
						c.expect(t, 0, "with a third of the answers wrong")
					}
				})
			})
		}
	}
}

func TestAWrongServerIsFollowedOnlyAfterMinutes(t *testing.T) {
	for name, test := range map[string]struct{ pause, survives, followed time.Duration }{
		"a busy operator":    {100 * time.Millisecond, 2 * time.Minute, 3 * time.Minute},
		"an idle operator":   {2 * time.Second, 4 * time.Minute, 5 * time.Minute},
		"one in ten seconds": {10 * time.Second, 20 * time.Minute, 25 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(time.Now, logr.Discard())
				answers := func(off, lasting time.Duration) {
					for end := time.Now().Add(lasting); time.Now().Before(end); time.Sleep(test.pause) {
						c.answer(off)
					}
				}
				answers(0, windowSize*max(spacing, test.pause)*2)
				answers(time.Hour, test.survives)
				c.expect(t, 0, "while the connection leads to a wrong server for a short time")
				answers(0, windowSize*max(spacing, test.pause)*2)
				answers(time.Hour, test.followed)
				c.expect(t, time.Hour, "when all answers agree for long")
				answers(0, test.followed)
				c.expect(t, 0, "when they are right again")
			})
		})
	}
}

func TestABurstCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(time.Now, logr.Discard())
		for range startCount {
			c.answer(0)
			time.Sleep(startSpacing)
		}
		// Requests in parallel, so that time hardly passes.
		sent := c.now()
		time.Sleep(time.Second)
		for range 1000 {
			c.observe(sent, c.now(), time.Now().Add(time.Hour).Truncate(granularity))
		}
		c.expect(t, 0, "after a burst of wrong answers")
		if got := len(c.window.answers); got != startCount+1 {
			t.Errorf("%d answers count, want %d", got, startCount+1)
		}
	})
}

// At the start the own wall clock and the answers vote.
func TestTheFirstAnswers(t *testing.T) {
	const hour = time.Hour
	for name, test := range map[string]struct {
		own     time.Duration
		answers []time.Duration
		want    time.Duration
	}{
		"one right answer":                           {0, []time.Duration{0}, 0},
		"one wrong answer":                           {0, []time.Duration{hour}, 0},
		"a wrong answer, then a right one":           {0, []time.Duration{hour, 0}, 0},
		"a right answer, then a wrong one":           {0, []time.Duration{0, hour}, 0},
		"own clock wrong, two right answers":         {-hour, []time.Duration{0, 0}, 0},
		"own clock wrong, one of three answers too":  {-hour, []time.Duration{0, 0, hour}, 0},
		"own clock and an answer wrong, three right": {-hour, []time.Duration{hour, 0, 0, 0}, 0},
		"two wrong answers outvote the own clock":    {0, []time.Duration{hour, hour}, hour},
		"right answers correct two wrong ones":       {0, []time.Duration{hour, hour, 0, 0}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(machine(&test.own), logr.Discard())
				for i, off := range test.answers {
					if i >= immediateCount {
						time.Sleep(startSpacing)
					}
					c.answer(off)
				}
				c.expect(t, test.want, "then")
			})
		})
	}
}

func TestASlowAnswerSaysLittleAndNothingFalse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(time.Now, logr.Discard())
		for range windowSize {
			sent := c.now()
			date := time.Now().Truncate(granularity)
			time.Sleep(time.Hour)
			c.observe(sent, c.now(), date)
		}
		if c.offset != 0 || c.Skew() != (Skew{}) {
			t.Errorf("answers that took an hour moved the clock by %s, %+v", c.offset, c.Skew())
		}
	})
}

// Readings of time.Now carry the monotonic clock, and their difference is measured by that.
func TestAStepOfTheWallClockChangesNothing(t *testing.T) {
	start := time.Now()
	reading := start
	c := New(func() time.Time { return reading }, logr.Discard())
	reading = start.Add(5 * time.Second)
	if got := c.Now().Sub(start.Round(0)); got != 5*time.Second {
		t.Errorf("after 5 s it says that %s have passed", got)
	}
	if got := c.Now(); got != got.Round(0) {
		t.Error("what it says carries a monotonic reading, which would be compared instead of the time")
	}
}

func TestTheSkewIsKnownAndLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged []string
		own := time.Duration(0)
		c := New(machine(&own), funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}))
		expect := func(operator, servers time.Duration, lines int) {
			t.Helper()
			got := c.Skew()
			if (got.Operator-operator).Abs() > granularity || (got.APIServers-servers).Abs() > granularity || len(logged) != lines {
				t.Errorf("skew %+v, want %s and %s; %d lines logged, want %d", got, operator, servers, len(logged), lines)
			}
		}
		answers := func(off time.Duration, count int) {
			for range count {
				c.answer(off)
				time.Sleep(spacing)
			}
		}
		expect(0, 0, 0)
		answers(0, windowSize)
		expect(0, 0, 0)
		answers(4*time.Second, 1)
		expect(0, 4*time.Second, 0)
		answers(-time.Minute, 2)
		expect(0, time.Minute+4*time.Second, 1)
		answers(0, windowSize-1)
		expect(0, time.Minute, 1)
		answers(0, 1)
		expect(0, 0, 1)
		answers(time.Hour, windowSize)
		expect(time.Hour, 0, 2)
	})
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
			c := New(machine(&off), logr.Discard())
			client := &http.Client{Transport: c.Wrap(http.DefaultTransport)}
			for range immediateCount {
				response, err := client.Get(server.URL)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
			}
			want := off
			if name == "a date" {
				want = 0
			}
			if got := c.error(); (got - want).Abs() > time.Minute {
				t.Errorf("after the answers it is %s off, not %s", got, want)
			}
		})
	}
}

func TestAFailedRequestIsPassedOn(t *testing.T) {
	t.Parallel()
	c := New(time.Now, logr.Discard())
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Wrap(http.DefaultTransport).RoundTrip(request)
	if err == nil {
		response.Body.Close()
		t.Fatal("a server that is gone answered")
	}
	if len(c.window.answers) != 0 {
		t.Error("a failed request counts as an observation")
	}
}
