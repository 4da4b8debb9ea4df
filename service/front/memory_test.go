package front_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
)

// TestMemoryOfPrincipals checks whose share of the memory a request uses: that of the principal,
// wherever its requests come from, and that of the address of a client without a name.
func TestMemoryOfPrincipals(t *testing.T) {
	const first, second = "192.0.2.1:1", "192.0.2.2:1"
	for name, test := range map[string]struct {
		holder, holderAt, other, otherAt string
		bytes                            int // of 1000, of which the holder has 500
		refused                          bool
	}{
		"a name at another address":       {"a", first, "a", second, 400, true},
		"another name at the address":     {"a", first, "b", first, 350, false},
		"no name, the same address":       {"", first, "", first, 400, true},
		"no name, another address":        {"", first, "", second, 350, false},
		"no name, the address of another": {"a", first, "", first, 350, false},
	} {
		t.Run(name, func(t *testing.T) {
			var handler *front.Handler
			send := func(who, address string, bytes int) error {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.RemoteAddr = address
				r.Header.Set("Who", who)
				r.Header.Set("Bytes", strconv.Itoa(bytes))
				var err error
				handler.ServeHTTP(httptest.NewRecorder(),
					r.WithContext(context.WithValue(t.Context(), charged{}, &err)))
				return err
			}
			var err error
			handler, err = front.New(front.Config{
				Conn:      inproc.NewConn(nil, nil),
				Admission: admission.New(admission.Config{Bytes: 1000}),
				APIs: []front.API{api(func(x *front.Exchange) {
					r := x.Request()
					if err := x.Admit(func(context.Context) (*caller.Identity, error) {
						if r.Header.Get("Who") == "" {
							return nil, nil
						}
						return &caller.Identity{Principal: r.Header.Get("Who")}, nil
					}); err != nil {
						t.Fatal(err)
					}
					bytes, _ := strconv.ParseInt(r.Header.Get("Bytes"), 10, 64)
					result, _ := r.Context().Value(charged{}).(*error)
					*result = x.Memory.Charge(bytes)
					if bytes == 500 { // the holder: while it has its bytes
						*result = send(test.other, test.otherAt, test.bytes)
					}
				})},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := send(test.holder, test.holderAt, 500); (err != nil) != test.refused {
				t.Errorf("the other request: %v, want refused %v", err, test.refused)
			}
		})
	}
}

// charged keys where a test's request leaves the error of its charge.
type charged struct{}
