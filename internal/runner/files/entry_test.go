package files

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAnyTimeOfAFileIsWritten(t *testing.T) {
	t.Parallel()
	for sec, want := range map[int64]string{
		0:             "1970-01-01T00:00:00.999999999Z",
		1 << 40:       "9999-12-31T23:59:59.999999999Z",
		math.MaxInt64: "9999-12-31T23:59:59.999999999Z",
		math.MinInt64: "0000-01-01T00:00:00.999999999Z",
	} {
		e := newEntry("f", &unix.Stat_t{Mtim: unix.Timespec{Sec: sec, Nsec: 999_999_999}}, -1, "")
		if _, err := json.Marshal(e); err != nil || e.ModTime.Format(time.RFC3339Nano) != want {
			t.Errorf("%d: %v, %v", sec, e.ModTime, err)
		}
	}
}
