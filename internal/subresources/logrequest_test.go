package subresources

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"toolcall.dev/operator/internal/output"
)

// asked is a request with a query and headers, given as names and values.
func asked(query string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/log", nil)
	r.URL.RawQuery = query
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func TestWhatIsMalformedIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		request *http.Request
		want    string
	}{
		"a stream that isn't one":      {asked("stream=stdin"), `unknown stream "stdin"`},
		"an empty stream":              {asked("stream="), `unknown stream ""`},
		"an empty artifact":            {asked("artifact="), "is empty"},
		"an artifact of a stream":      {asked("artifact=a&stream=stdout"), "excludes"},
		"an artifact that is followed": {asked("artifact=a&follow=false"), "excludes"},
		"an artifact twice":            {asked("artifact=a&artifact=b"), "given 2 times"},
		"a negative offset":            {asked("offset=-1"), "whole number from 0"},
		"an offset with a sign":        {asked("offset=%2B1"), "whole number from 0"},
		"an offset in hexadecimal":     {asked("offset=0x10"), "whole number from 0"},
		"an offset of nothing":         {asked("offset="), "whole number from 0"},
		"an offset with a fraction":    {asked("offset=1.5"), "whole number from 0"},
		"an offset that's too large":   {asked("offset=9223372036854775808"), "whole number from 0"},
		"a limit of nothing":           {asked("limit=0"), "whole number from 1"},
		"an unknown parameter":         {asked("tail=5"), `unknown parameter "tail"`},
		"a parameter in capitals":      {asked("Stream=stdout"), `unknown parameter "Stream"`},
		"a parameter twice":            {asked("offset=1&offset=2"), "given 2 times"},
		"follow that isn't yes or no":  {asked("follow=1"), "must be true or false"},
		"follow without a value":       {asked("follow"), "must be true or false"},
		"a broken escape":              {asked("stream=%zz"), "can't be parsed"},
		"a semicolon":                  {asked("stream=stdout;offset=1"), "can't be parsed"},
		"a range of lines":             {asked("", "Range", "lines=1-2"), "can't be served"},
		"two ranges":                   {asked("", "Range", "bytes=0-1,3-4"), "can't be served"},
		"two headers":                  {asked("", "Range", "bytes=0-1", "Range", "bytes=3-4"), "can't be served"},
		"a range backwards":            {asked("", "Range", "bytes=4-3"), "can't be served"},
		"a range of nothing":           {asked("", "Range", "bytes=-"), "can't be served"},
		"a range without a dash":       {asked("", "Range", "bytes=4"), "can't be served"},
		"a range with a space":         {asked("", "Range", "bytes= 1-2"), "can't be served"},
		"a negative range":             {asked("", "Range", "bytes=--1"), "can't be served"},
		"a range and an offset":        {asked("offset=1", "Range", "bytes=0-1"), "excludes"},
		"a range and a limit":          {asked("limit=1", "Range", "bytes=0-1"), "excludes"},
		"a range that is followed":     {asked("follow=true", "Range", "bytes=0-1"), "excludes"},
	} {
		_, err := parseLogRequest(tc.request)
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhichBytesAreMeant(t *testing.T) {
	t.Parallel()
	growing := output.Info{Bytes: 100}
	shortened := output.Info{Bytes: 100, Complete: true, Missing: output.Range{Start: 20, End: 70}}
	const past, gone = http.StatusRequestedRangeNotSatisfiable, http.StatusGone
	for name, tc := range map[string]struct {
		request    *http.Request
		info       output.Info
		start, end int64
		code       int32
	}{
		"all":                            {asked(""), growing, 0, 100, 0},
		"from an offset":                 {asked("offset=30"), growing, 30, 100, 0},
		"so many":                        {asked("offset=30&limit=5"), growing, 30, 35, 0},
		"more than there are":            {asked("offset=30&limit=500"), growing, 30, 100, 0},
		"the largest numbers":            {asked("offset=30&limit=9223372036854775807"), growing, 30, 100, 0},
		"none, at the end":               {asked("offset=100"), growing, 100, 100, 0},
		"behind the end":                 {asked("offset=101"), growing, 0, 0, past},
		"a range":                        {asked("", "Range", "bytes=10-19"), growing, 10, 20, 0},
		"a range of one byte":            {asked("", "Range", "bytes=99-99"), growing, 99, 100, 0},
		"an open range":                  {asked("", "Range", "bytes=10-"), growing, 10, 100, 0},
		"a range over the end":           {asked("", "Range", "bytes=10-9223372036854775807"), growing, 10, 100, 0},
		"a range at the end":             {asked("", "Range", "bytes=100-"), growing, 0, 0, past},
		"the last bytes":                 {asked("", "Range", "bytes=-10"), growing, 90, 100, 0},
		"more last bytes than there are": {asked("", "Range", "bytes=-9223372036854775807"), growing, 0, 100, 0},
		"no last bytes":                  {asked("", "Range", "bytes=-0"), growing, 0, 0, past},
		"a range of an empty stream":     {asked("", "Range", "bytes=0-"), output.Info{}, 0, 0, past},
		"a condition on the range":       {asked("", "Range", "bytes=10-19", "If-Range", `"x"`), growing, 0, 100, 0},
		"up to what wasn't kept":         {asked(""), shortened, 0, 20, 0},
		"before what wasn't kept":        {asked("offset=5&limit=10"), shortened, 5, 15, 0},
		"in what wasn't kept":            {asked("offset=20"), shortened, 0, 0, gone},
		"at the end of it":               {asked("", "Range", "bytes=69-80"), shortened, 0, 0, gone},
		"behind what wasn't kept":        {asked("offset=70"), shortened, 70, 100, 0},
		"a range into what wasn't kept":  {asked("", "Range", "bytes=10-90"), shortened, 10, 20, 0},
		"the last bytes that are kept":   {asked("", "Range", "bytes=-50"), shortened, 70, 100, 0},
		"as many last bytes as all":      {asked("", "Range", "bytes=-100"), shortened, 0, 20, 0},
	} {
		q, err := parseLogRequest(tc.request)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		start, end, err := q.resolve(tc.info)
		if code := codeOf(err); code != tc.code || start != tc.start || end != tc.end {
			t.Errorf("%s: [%d, %d), %v; want [%d, %d), %d", name, start, end, err, tc.start, tc.end, tc.code)
		}
	}
}

func codeOf(err error) int32 {
	if err == nil {
		return 0
	}
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		return -1
	}
	return status.Status().Code
}

// Whatever is asked for, the bytes that are meant are there.
func FuzzRequests(f *testing.F) {
	f.Add("stream=stdout&offset=1&limit=2", "", int64(10), int64(2), int64(5))
	f.Add("", "bytes=0-9223372036854775807", int64(10), int64(0), int64(0))
	f.Add("", "bytes=-5", int64(10), int64(4), int64(10))
	f.Fuzz(func(t *testing.T, query, header string, bytes, from, to int64) {
		if bytes < 0 || from < 0 || from > to || to > bytes {
			t.Skip()
		}
		r := asked(query)
		if header != "" {
			r.Header["Range"] = []string{header}
		}
		q, err := parseLogRequest(r)
		if err != nil {
			if !apierrors.IsBadRequest(err) {
				t.Fatal(err)
			}
			return
		}
		info := output.Info{Bytes: bytes, Complete: true}
		if from < to {
			info.Missing = output.Range{Start: from, End: to}
		}
		start, end, err := q.resolve(info)
		if err != nil {
			return
		}
		if start < 0 || end < start || end > bytes || end > from && start < to && from < to && start < end {
			t.Fatalf("%q, %q of %+v: [%d, %d)", url.QueryEscape(query), header, info, start, end)
		}
	})
}
