package console

import (
	"embed"
	"encoding/json"
	"io/fs"
	"net/http"
	"path"
	"strconv"

	"toolcall.dev/operator/internal/denials"
)

//go:embed static
var static embed.FS

// types are the media types of the page's files.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".json": "application/json",
}

// page serves the page's files. They are the same for everybody, so they need no token.
type page map[string][]byte

// newPage reads the files, which are part of the program.
func newPage() page {
	p := page{}
	_ = fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, _ error) (err error) {
		if !entry.IsDir() {
			p["/"+path.Base(name)], err = static.ReadFile(name)
		}
		return err
	})
	p["/denials.json"], _ = json.Marshal(denials.Rules())
	p["/"] = p["/index.html"]
	delete(p, "/index.html")
	return p
}

func (p page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, ok := p[r.URL.Path]
	if !ok || r.URL.RawPath != "" {
		reject(w, http.StatusNotFound, "the console has no such page")
		return
	}
	extension := path.Ext(r.URL.Path)
	if r.URL.Path == "/" {
		extension = ".html"
	}
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Content-Type", types[extension])
	h.Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = w.Write(content)
}
