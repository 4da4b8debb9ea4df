package rest

import (
	"fmt"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/payload"
)

// TestSharedTexts checks that the text of a document is its own, in each form, also after its
// memory has another document, and that it is made once.
func TestSharedTexts(t *testing.T) {
	var texts sharedTexts
	number := bson.NewBuilder(nil).Int32("n", 0).Finish()
	write := func(mode extjson.Mode) string {
		e := encoder{buf: []byte("data: "), mode: mode}
		if err := texts.append(&e, payload.NewDocument(number)); err != nil {
			t.Fatal(err)
		}
		return string(e.buf)
	}
	for i := range 3 * keptTexts {
		copy(number, bson.NewBuilder(nil).Int32("n", int32(i/2)).Finish()) // in the same memory
		want := fmt.Sprintf(`data: {"n":%d}`, i/2)
		if got := write(extjson.Relaxed); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		want = fmt.Sprintf(`data: {"n":{"$numberInt":"%d"}}`, i/2)
		if got := write(extjson.Canonical); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if made := texts.last.Load(); made != 3*keptTexts {
		t.Errorf("%d texts were made, want %d", made, 3*keptTexts)
	}
	large := bson.NewBuilder(nil).Binary("b", 0, make([]byte, maxShared)).Finish()
	e := encoder{mode: extjson.Relaxed}
	if err := texts.append(&e, payload.NewDocument(large)); err != nil || len(e.buf) < maxShared {
		t.Errorf("%d bytes, %v", len(e.buf), err)
	}
	if made := texts.last.Load(); made != 3*keptTexts {
		t.Error("the text of a large document is kept")
	}
	if err := texts.append(&e, payload.NewDocument([]byte{5, 0, 0, 0, 1})); err == nil {
		t.Error("a document that is none has a text")
	}
}
