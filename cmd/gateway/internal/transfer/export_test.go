package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/cmd/gateway/internal/render"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/match"
)

// TestEqualIDs exports documents several of which have one _id, from a deployment that returns
// these in another order each time, and loses every cursor until the last.
func TestEqualIDs(t *testing.T) {
	id := func(v bson.Value, pad int) bson.Raw {
		return bson.NewBuilder(nil).Value("_id", v).Binary("pad", 0, make([]byte, pad)).Finish()
	}
	one, two := bson.Int32Value(1), bson.Int32Value(2)
	const large = mostHeld/2 + 1
	const tooMany = "too many documents have one _id to continue among them: refused"
	for name, tt := range map[string]struct {
		docs    []bson.Raw
		page    int
		written int
		err     string
	}{
		"the page ends in them": {
			[]bson.Raw{id(one, 0), id(two, 1), id(two, 2), id(bson.Int32Value(3), 3)}, 2, 4, "",
		},
		"numbers of other types": {
			[]bson.Raw{id(one, 1), id(bson.DoubleValue(1), 2), id(bson.Int64Value(1), 3)}, 2, 3, "",
		},
		"the first page has no other": {[]bson.Raw{id(one, 1), id(one, 2)}, 1, 2, ""},
		"too many": {
			[]bson.Raw{id(one, 0), id(two, large), id(two, large+1), id(two, large+2)},
			3, 3, tooMany,
		},
		"too many before": {[]bson.Raw{id(one, large), id(one, large+1), id(two, 0)}, 3, 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lost := refuse(t, codes.NotFound, "CursorNotFound", "restart", 0)
				finds := 0
				from := orders(func(_ context.Context, request, response any) error {
					find, ok := request.(*mooringv1.FindRequest)
					if !ok {
						return lost
					}
					filter, err := match.Compile(find.GetFilter().GetBson())
					if err != nil {
						return err
					}
					var docs []*mooringv1.Document
					for _, d := range tt.docs {
						if filter.Match(d) == match.Yes {
							docs = append(docs, document(d))
						}
					}
					if finds++; finds%2 == 0 {
						slices.Reverse(docs)
						slices.SortStableFunc(docs, func(a, b *mooringv1.Document) int {
							v, _ := bson.Raw(a.GetBson()).Lookup("_id")
							w, _ := bson.Raw(b.GetBson()).Lookup("_id")
							return match.Compare(v, w)
						})
					}
					found := response.(*mooringv1.FindResponse)
					if found.Documents = docs; len(docs) > tt.page && finds < 4 {
						found.Documents, found.Cursor = docs[:tt.page], new("page")
					}
					return nil
				})
				var file bytes.Buffer
				n, err := Export{
					Collection: from, Output: render.Options{Format: render.BSON},
				}.Run(t.Context(), &file)
				said := ""
				if err != nil {
					said = err.Error()
				}
				if n != int64(tt.written) || said != tt.err {
					t.Errorf("Run: %d documents and %v, want %d and %q", n, err, tt.written, tt.err)
				}
				for i, d := range tt.docs {
					n := strings.Count(file.String(), string(d))
					if n > 1 || n < 1 && tt.err == "" {
						t.Errorf("document %d is there %d times", i+1, n)
					}
				}
			})
		})
	}
}

// TestOrder checks which ids an export that continues finds after another one.
func TestOrder(t *testing.T) {
	ids := []string{ // in the order of a server
		`{"$minKey": 1}`, `null`, `{"$numberDecimal": "NaN"}`, `{"$numberDouble": "-Infinity"}`, `1`,
		`{"$numberDecimal": "2"}`, `"a"`, `{"a": 1}`, `true`, `{"$maxKey": 1}`,
	}
	for i, id := range append(ids, `{"$numberDouble": "NaN"}`) {
		x := exporting{after: idOf(t, id)}
		if i == len(ids) {
			i = slices.Index(ids, `{"$numberDecimal": "NaN"}`)
		}
		filter, err := match.Compile(x.filter())
		if err != nil {
			t.Errorf("after %s: %v", id, err)
			continue
		}
		for j, other := range ids {
			doc := bson.NewBuilder(nil).Value("_id", idOf(t, other)).Finish()
			if got := filter.Match(doc) == match.Yes; got != (j > i) {
				t.Errorf("after %s: it finds %s: %t", id, other, got)
			}
		}
	}
}

func idOf(t *testing.T, text string) bson.Value {
	t.Helper()
	d, err := extjson.Parse(nil, []byte(`{"_id": `+text+`}`))
	if err != nil {
		t.Fatal(err)
	}
	id, _ := bson.Raw(d).Lookup("_id")
	return id
}

// disk is a file and the rejects of an import. It knows what outlasts a crash of the machine, and
// looks at each call whether the checkpoint speaks of more.
type disk struct {
	*os.File

	t          *testing.T
	checkpoint string
	safe       int64
}

func newDisk(t *testing.T) *disk {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &disk{f, t, filepath.Join(dir, "state"), 0}
}

// check returns what the checkpoint says.
func (d *disk) check() int64 {
	d.t.Helper()
	var state struct{ Bytes, RejectBytes int64 }
	text, err := os.ReadFile(d.checkpoint)
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	said := max(state.Bytes, state.RejectBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || said > d.safe {
		d.t.Errorf("the checkpoint says %d bytes, %v: %d are safe", said, err, d.safe)
	}
	return said
}

func (d *disk) Write(b []byte) (int, error) {
	d.check()
	return d.File.Write(b)
}

func (d *disk) Sync() (err error) {
	d.check()
	d.safe, err = d.Seek(0, io.SeekCurrent)
	return err
}

func (d *disk) Reject(t *Trouble) error {
	_, err := d.Write([]byte(t.Reason))
	return err
}

func (d *disk) Size() (int64, error) { return d.Seek(0, io.SeekCurrent) }
func (d *disk) At(int64) error       { return nil }

// TestSafeCheckpoint checks that a checkpoint never speaks of bytes that a crash of the machine can
// lose.
func TestSafeCheckpoint(t *testing.T) {
	t.Run("export", func(t *testing.T) {
		from := orders(func(_ context.Context, _, response any) error {
			for i := range int32(5) {
				response.(*mooringv1.FindResponse).Documents = append(
					response.(*mooringv1.FindResponse).Documents,
					document(bson.NewBuilder(nil).Int32("_id", i).
						Binary("pad", 0, make([]byte, savedBytes/2)).Finish()))
			}
			return nil
		})
		d := newDisk(t)
		_, err := Export{
			Collection: from, Output: render.Options{Format: render.BSON}, Checkpoint: d.checkpoint,
		}.Run(t.Context(), d)
		if said := d.check(); err != nil || said < 5*savedBytes/2 {
			t.Errorf("Run: %v; the checkpoint says %d bytes", err, said)
		}
	})
	t.Run("import", func(t *testing.T) {
		d := newDisk(t)
		_, err := Import{Rejects: d, Checkpoint: d.checkpoint}.Run(t.Context(),
			strings.NewReader(strings.Repeat("{\"a\":?}\n", 3*batchDocs)))
		if said := d.check(); err != nil || said == 0 {
			t.Errorf("Run: %v; the checkpoint says %d bytes", err, said)
		}
	})
}
