package subresources

import (
	"bytes"
	"errors"
	"net/http"
	"testing"

	"toolcall.dev/operator/internal/dispatch"
)

// frames keeps what is written, up to a number of writes.
type frames struct {
	http.ResponseWriter
	most  int
	sizes []int
	bytes.Buffer
}

var errFull = errors.New("no more")

func (f *frames) Write(p []byte) (int, error) {
	if len(f.sizes) == f.most {
		return 0, errFull
	}
	f.sizes = append(f.sizes, len(p))
	return f.Buffer.Write(p)
}

func TestAPartIsWrittenInWholeFrames(t *testing.T) {
	t.Parallel()
	part := bytes.Repeat([]byte("0123456789"), dispatch.PartBytes/10)
	to := &frames{most: 8}
	if n, err := exchangeBy("u", to, nil).Write(part); n != len(part) || err != nil || !bytes.Equal(to.Bytes(), part) {
		t.Errorf("%d bytes, %v", n, err)
	}
	for _, size := range to.sizes {
		if size != dispatch.FrameBytes {
			t.Errorf("frames of %v bytes", to.sizes)
		}
	}
	to = &frames{most: 2}
	if n, err := exchangeBy("u", to, nil).Write(part); n != 2*dispatch.FrameBytes || !errors.Is(err, errFull) {
		t.Errorf("%d bytes, %v", n, err)
	}
	to = &frames{}
	if n, err := exchangeBy("u", to, nil).Write(nil); n != 0 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}
