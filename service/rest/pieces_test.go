package rest_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/admission"
)

// headerWatch is a response that looks at the memory that is charged when its header is written.
type headerWatch struct {
	*httptest.ResponseRecorder
	of   *admission.Admission
	held int64
}

func (w *headerWatch) WriteHeader(code int) {
	w.held = w.of.Bytes().Held
	w.ResponseRecorder.WriteHeader(code)
}

// TestTextIsKept checks which large responses are kept until their length is known, that what is
// kept is charged, and that the client gets the same either way.
func TestTextIsKept(t *testing.T) {
	for _, test := range []struct {
		name         string
		docs, length int
		budget       int64
		header       []string
		kept         bool
	}{
		{name: "a page", docs: 1000, length: 1000, budget: 64 << 20, kept: true},
		{name: "little memory", docs: 1000, length: 1000, budget: 256 << 10},
		{name: "memory for a part", docs: 1000, length: 1000, budget: 700 << 10},
		{name: "a long page", docs: 3000, length: 1000, budget: 64 << 20},
		{name: "large documents", docs: 10, length: 100_000, budget: 64 << 20},
		{
			name: "as BSON", docs: 1000, length: 1000, budget: 64 << 20,
			header: []string{"Accept", "application/bson"},
		},
		{
			name: "compressed", docs: 1000, length: 1000, budget: 64 << 20, kept: true,
			header: []string{"Accept-Encoding", "gzip"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := findsPads(pads(test.docs, test.length, "x"))
			want := do(newHandler(t, f), "POST", documents+":find", "{}", test.header...)
			h, a := limited(t, f, test.budget)
			w := &headerWatch{httptest.NewRecorder(), a, 0}
			r := newPost(documents+":find", strings.NewReader("{}"))
			if test.header != nil {
				r.Header.Set(test.header[0], test.header[1])
			}
			h.ServeHTTP(w, r)
			if w.Code != http.StatusOK || w.Body.String() != want.Body.String() {
				t.Errorf("%d with %d bytes, want %d", w.Code, w.Body.Len(), want.Body.Len())
			}
			if kept := w.held >= int64(test.docs*test.length); kept != test.kept {
				t.Errorf("%d bytes are charged at the header, of %d", w.held, test.docs*test.length)
			}
			got, length := w.Header().Get("Content-Length"), strconv.Itoa(w.Body.Len())
			if test.header == nil && got != length {
				t.Errorf("Content-Length: %s of %s", got, length)
			}
			if held := a.Bytes().Held; held != 0 {
				t.Errorf("%d bytes are held at the end", held)
			}
		})
	}
}
