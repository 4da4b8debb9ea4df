package failure_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// TestReply: an error has the name of its code, and the label that its command makes it have.
func TestReply(t *testing.T) {
	conflict := failure.WriteConflict.Errorf("document %d", 1)
	for _, c := range []struct {
		err           error
		inTransaction bool
		want          string
	}{
		{conflict, false, `"document 1","code":112,"codeName":"WriteConflict"`},
		{conflict, true, `"document 1","code":112,"codeName":"WriteConflict","errorLabels":["TransientTransactionError"]`},
		{fmt.Errorf("in front: %w", conflict), false, `"document 1","code":112,"codeName":"WriteConflict"`},
		{failure.UnknownStage.Errorf("no"), true, `"no","code":40324,"codeName":"Location40324"`},
		{failure.ChangeStreamHistoryLost.Errorf("no"), false, `"no","code":286,"codeName":"ChangeStreamHistoryLost","errorLabels":["NonResumableChangeStreamError"]`},
		{errors.New("disk"), true, `"disk","code":1,"codeName":"InternalError"`},
	} {
		got, err := extjson.Append(nil, failure.Reply(c.err, c.inTransaction), extjson.Relaxed)
		if want := `{"ok":0.0,"errmsg":` + c.want + `}`; err != nil || string(got) != want {
			t.Errorf("%v is %s, %v; want %s", c.err, got, err, want)
		}
	}
	if failure.WriteConflict.Is(nil) || failure.BadValue.Is(conflict) ||
		!failure.WriteConflict.Is(conflict) {
		t.Error("Is is wrong")
	}
}
