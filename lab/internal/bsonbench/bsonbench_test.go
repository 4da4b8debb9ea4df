package bsonbench_test

import (
	"testing"

	"github.com/mooringdb/mooring/lab/internal/bsonbench"
)

func TestDocuments(t *testing.T) {
	docs, note := bsonbench.Documents()
	if note != "" {
		t.Log(note)
	} else if len(docs) != 7 {
		t.Errorf("%d documents", len(docs))
	}
	for _, d := range docs {
		if err := d.BSON.Validate(); err != nil || len(d.BSON) < 100 {
			t.Errorf("%s: %d bytes, %v", d.Name, len(d.BSON), err)
		}
	}
}

func TestElsewhere(t *testing.T) {
	t.Setenv("SPECIFICATIONS_DIR", t.TempDir())
	if docs, note := bsonbench.Documents(); len(docs) != 1 || note == "" {
		t.Errorf("without the specifications: %d documents, note %q", len(docs), note)
	}
}
