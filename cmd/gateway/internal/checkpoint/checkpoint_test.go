package checkpoint_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mooringdb/mooring/cmd/gateway/internal/checkpoint"
)

func TestCheckpoint(t *testing.T) {
	type state struct{ N int }
	path := filepath.Join(t.TempDir(), "state")
	var got state
	if ok, err := checkpoint.Load(path, &got); ok || err != nil {
		t.Errorf("Load without a file = %v, %v", ok, err)
	}
	for _, durable := range []bool{false, true} {
		for n := range 3 {
			if err := checkpoint.Save(path, state{n}, durable); err != nil {
				t.Fatal(err)
			}
			if ok, err := checkpoint.Load(path, &got); !ok || err != nil || got.N != n {
				t.Errorf("Load = %v, %v, %v; want %d", got, ok, err, n)
			}
		}
	}
	if err := checkpoint.Save(filepath.Join(path, "x"), got, false); err == nil {
		t.Error("Save in a folder that is none: no error")
	}
	if err := os.WriteFile(path, []byte(`{"M": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Load(path, &got); err == nil {
		t.Error("Load of another state: no error")
	}
}
