package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// benchValues are 32 values as they are found: tokens, passwords, and a key of many lines.
func benchValues() []Value {
	r := rand.New(rand.NewPCG(7, 7))
	values := []Value{{Name: "key", Value: []byte("-----BEGIN PRIVATE KEY-----\n" + wrapAt(randomBase64(r, 1200), 64) + "\n-----END PRIVATE KEY-----\n")}}
	for i := range 31 {
		prefix := []string{"ghp_", "sk-proj-", "xoxb-", "AKIA", "", "pass word ", "p%40ss+"}[i%7]
		values = append(values, Value{Name: fmt.Sprintf("value-%d", i), Value: []byte(prefix + randomBase64(r, 15+i))})
	}
	return values
}

func randomBase64(r *rand.Rand, n int) string {
	return base64.RawURLEncoding.EncodeToString(randomBytes(r, n))
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func wrapAt(s string, width int) string {
	var b strings.Builder
	for len(s) > width {
		b.WriteString(s[:width] + "\n")
		s = s[width:]
	}
	return b.String() + s
}

// benchTexts have no value, and are of a MiB each.
func benchTexts() map[string][]byte {
	r := rand.New(rand.NewPCG(8, 8))
	log := func(i int) string {
		return fmt.Sprintf("2026-01-02T03:04:%02d.%03dZ INFO server: request %d from 10.0.%d.%d took %d ms\n", i%60, i%1000, r.Uint32(), i%256, i%199, r.IntN(900))
	}
	source := sourceCode()
	const cyrillic = "Когда сборка закончена, результаты копируются в каталог проекта."
	return map[string][]byte{
		"log": repeat(log),
		"prose": repeat(func(int) string {
			return "When the build has ended, the results are copied to the directory of the project\nand the caches are removed. "
		}),
		"JSON log": repeat(func(i int) string {
			raw, _ := json.Marshal(map[string]any{"level": "info", "msg": log(i), "path": "C:\\data\\x", "n": i})
			return string(raw) + "\n"
		}),
		"URLs": repeat(func(i int) string {
			return "https://example.com/search?q=" + url.QueryEscape(log(i)) + "\n"
		}),
		"source code":    repeat(func(int) string { return source }),
		"source in JSON": repeat(func(int) string { return string(jsonOptions(0).escaped([]byte(source))) }),
		"JSON in JSON": repeat(func(i int) string {
			raw, _ := json.Marshal(map[string]any{"level": "info", "msg": log(i), "n": i, "tags": []string{"a", "b/c"}})
			return string(jsonOptions(0).escaped(raw)) + "\n"
		}),
		"Cyrillic JSON":  repeat(func(int) string { return string(escapesNonASCII.escaped([]byte(cyrillic))) + "\n" }),
		"Cyrillic URLs":  repeat(func(int) string { return "https://example.com/search?q=" + url.QueryEscape(cyrillic) + "\n" }),
		"base64":         repeat(func(int) string { return base64.StdEncoding.EncodeToString(randomBytes(r, 3000)) + "\n" }),
		"wrapped base64": repeat(func(int) string { return base64.StdEncoding.EncodeToString(randomBytes(r, 57)) + "\n" }),
		"hex":            repeat(func(int) string { return hex.EncodeToString(randomBytes(r, 32)) + "  file\n" }),
		"binary":         randomBytes(r, 1<<20),
		"dashes":         bytes.Repeat([]byte("-"), 1<<20),
		"beginnings":     repeat(func(int) string { return "https://user:" }),
	}
}

// sourceCode is that of this package.
func sourceCode() string {
	var all []byte
	names, _ := filepath.Glob("*.go")
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			panic(err)
		}
		all = append(all, raw...)
	}
	return string(all)
}

func repeat(line func(int) string) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < 1<<20; i++ {
		b.WriteString(line(i))
	}
	return b.Bytes()[:1<<20]
}

// BenchmarkText has the aim of 1 millisecond of processor time for a MiB, with 32 values.
func BenchmarkText(b *testing.B) { benchTextsWith(b, benchValues()) }

// BenchmarkForeign is BenchmarkText with values of which every second one is foreign.
func BenchmarkForeign(b *testing.B) {
	values := benchValues()
	for i := range values {
		values[i].Foreign = i%2 == 0
	}
	benchTextsWith(b, values)
}

// BenchmarkAlike is BenchmarkText with values that all begin as lines of some texts do.
func BenchmarkAlike(b *testing.B) {
	values := benchValues()
	for i := range values {
		beginning := []string{"https://user:", `{"type": "service_account", "private_key": "`, "2026-01-02T03:04:"}[i%3]
		values[i].Value = append([]byte(beginning), values[i].Value...)
	}
	benchTextsWith(b, values)
}

func benchTextsWith(b *testing.B, values []Value) {
	m := mustNew(b, values)
	texts := benchTexts()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		b.Run(name, func(b *testing.B) { benchStream(b, m, texts[name], 16<<10) })
	}
}

// BenchmarkFloor is what copying the texts takes, and looking for one value with bytes.Index.
func BenchmarkFloor(b *testing.B) {
	value, texts := benchValues()[1].Value, benchTexts()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		var out []byte
		b.Run(name+"/copy", func(b *testing.B) {
			benchWrites(b, texts[name], 16<<10, func(part []byte) { out = append(out[:0], part...) })
		})
		b.Run(name+"/index", func(b *testing.B) {
			benchWrites(b, texts[name], 16<<10, func(part []byte) {
				if bytes.Contains(part, value) {
					b.Fatal("the text has a value")
				}
			})
		})
	}
}

func BenchmarkWriteSize(b *testing.B) {
	m := mustNew(b, benchValues())
	text := benchTexts()["log"]
	for _, size := range []int{1, 16, 80, 1024, 4096, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) { benchStream(b, m, text, size) })
	}
}

// benchStream redacts text again and again, in pieces of a size.
func benchStream(b *testing.B, m *Matcher, text []byte, size int) {
	s := m.NewStream()
	var out []byte
	benchWrites(b, text, size, func(part []byte) { out = s.Append(out[:0], part) })
}

// benchWrites reports processor time, since others may use the machine.
func benchWrites(b *testing.B, text []byte, size int, write func(part []byte)) {
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := processorTime()
	for b.Loop() {
		for from := 0; from < len(text); from += size {
			write(text[from:min(from+size, len(text))])
		}
	}
	used := processorTime() - before
	b.ReportMetric(used.Seconds()*1e3/float64(b.N)*float64(1<<20)/float64(len(text)), "cpu-ms/MiB")
}

func processorTime() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkWorst has values and texts that are made to cost most: what nearly is a value, again and again.
func BenchmarkWorst(b *testing.B) {
	b.Run("own", func(b *testing.B) { benchWorst(b, false) })
	b.Run("foreign", func(b *testing.B) { benchWorst(b, true) })
}

func benchWorst(b *testing.B, isForeign bool) {
	a := bytes.Repeat([]byte("a"), MaxLength)
	nearly := append(bytes.Repeat([]byte("a"), MaxLength-1), 'b')
	for name, one := range map[string]struct{ value, text []byte }{
		"all one byte":            {a, a},
		"nearly, plain":           {nearly, a},
		"nearly, hex":             {nearly, []byte(hex.EncodeToString(a))},
		"nearly, base64":          {nearly, []byte(base64.StdEncoding.EncodeToString(a))},
		"nearly, wrapped base64":  {nearly, []byte(wrapAt(base64.StdEncoding.EncodeToString(a), 1))},
		"nearly, percent":         {nearly, []byte(strings.Repeat("%61", MaxLength))},
		"nearly, JSON in JSON":    {nearly, []byte(strings.Repeat(`\\u0061`, MaxLength))},
		"percent signs":           {append(bytes.Repeat([]byte("%"), MaxLength-1), 'b'), bytes.Repeat([]byte("%"), MaxLength)},
		"backslashes":             {append(bytes.Repeat([]byte(`\`), MaxLength-1), 'b'), bytes.Repeat([]byte(`\`), MaxLength)},
		"digits that are letters": {bytes.Repeat([]byte("6"), MaxLength), bytes.Repeat([]byte("36"), MaxLength)},
		"short and often":         {[]byte("aaaaaaab"), a},
		"occurrences in one line": {[]byte("aaaaaaab"), bytes.Repeat([]byte("aaaaaaab,"), MaxLength/9)},
	} {
		m := mustNew(b, []Value{{Name: "value", Value: one.value, Foreign: isForeign}})
		text := bytes.Repeat(one.text, 1<<20/len(one.text)+1)[:1<<20]
		for _, size := range []int{1, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) { benchStream(b, m, text, size) })
		}
	}
}

// BenchmarkNew makes matchers: for values as they are found, and for the longest.
func BenchmarkNew(b *testing.B) {
	r := rand.New(rand.NewPCG(10, 10))
	long := []byte("x" + wrapAt(randomBase64(r, MaxLength), 64))[:MaxLength-1]
	alike := bytes.Repeat([]byte("a<\n"), MaxLength/3)
	many := func(value []byte) (values []Value) {
		for i := range MaxTotalLength / MaxLength {
			one := bytes.Clone(value)
			one[0] += byte(i)
			values = append(values, Value{Name: fmt.Sprintf("value-%d", i), Value: one})
		}
		return values
	}
	for _, tc := range []struct {
		name   string
		values []Value
	}{
		{"usual", benchValues()}, {"long", many(long)[:1]}, {"many long", many(long)}, {"long, alike", many(alike)[:1]}, {"many long, alike", many(alike)},
	} {
		b.Run(tc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m, err := New(tc.values)
				if err != nil {
					b.Fatal(err)
				}
				kept := 0
				for i := range m.needles {
					kept += cap(m.needles[i].text) + 4*cap(m.needles[i].repeats)
				}
				b.ReportMetric(float64(kept)/(1<<20), "kept-MiB")
			}
		})
	}
}
