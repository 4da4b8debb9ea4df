package driverbench

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/mooringdb/mooring/lab/internal/canned"
)

// TestDrivers checks that both drivers do the same work: they return the server's documents, in the
// same commands.
func TestDrivers(t *testing.T) {
	s, err := canned.Listen(filepath.Join(t.TempDir(), "canned.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var sent [2]int64
	for i, open := range []func() (driver, error){
		func() (driver, error) { return openOurs(t.Context(), s.URI()) },
		func() (driver, error) { return openOfficial(s.URI()) },
	} {
		d, err := open()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.close(context.WithoutCancel(t.Context())) }()
		before := s.Stats().Commands
		n := 0
		err = d.read(t.Context(), func(doc []byte) {
			if want, _ := canned.Document(collection, n); !bytes.Equal(doc, want) && !t.Failed() {
				t.Errorf("document %d of driver %d is %x, want %x", n, i, doc, want)
			}
			n++
		})
		if err != nil || n != documents {
			t.Errorf("read() of driver %d = %d documents, %v, want %d", i, n, err, documents)
		}
		if err := findOne(t.Context(), d); err != nil {
			t.Errorf("findOne() of driver %d = %v", i, err)
		}
		sent[i] = s.Stats().Commands - before
	}
	if want := int64(documents/batchSize + 1); sent != [2]int64{want, want} {
		t.Errorf("the drivers sent %d commands, want %d each", sent, want)
	}
}
