package bsonbench_test

import (
	"testing"

	"github.com/mooringdb/mooring/lab/internal/bsonbench"
)

func TestDocuments(t *testing.T) {
	docs, note := bsonbench.Documents()
	if note != "" {
		t.Log(note)
	} else if len(docs) != 8 {
		t.Errorf("%d documents", len(docs))
	}
	for _, d := range docs {
		for _, doc := range d.Docs {
			if err := doc.Validate(); err != nil || len(doc) < 100 {
				t.Errorf("%s: %d bytes, %v", d.Name, len(doc), err)
			}
		}
	}
}

func TestElsewhere(t *testing.T) {
	t.Setenv("SPECIFICATIONS_DIR", t.TempDir())
	if docs, note := bsonbench.Documents(); len(docs) != 2 || note == "" {
		t.Errorf("without the specifications: %d documents, note %q", len(docs), note)
	}
}
