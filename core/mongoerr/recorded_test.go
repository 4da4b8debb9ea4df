package mongoerr_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/recorded"
)

// TestRecorded classifies the replies of real servers and compares with the fields of their JSON.
func TestRecorded(t *testing.T) {
	type number struct {
		Int    int32   `json:"$numberInt,string"`
		Double float64 `json:"$numberDouble,string"`
	}
	kinds := map[string]int{}
	for _, e := range recorded.Exchanges(t) {
		t.Run(e.Server+"/"+e.Name, func(t *testing.T) {
			var want struct {
				OK          number
				Code        number
				CodeName    string
				Errmsg      string
				WriteErrors []struct {
					Index, Code number
					Errmsg      string
				}
			}
			if err := json.Unmarshal([]byte(e.JSON), &want); err != nil {
				t.Fatal(err)
			}
			reply, err := extjson.Parse(nil, []byte(e.JSON))
			if err != nil {
				t.Fatal(err)
			}
			err = mongoerr.FromReply("a:27017", reply)
			switch {
			case want.OK.Double == 0 && want.OK.Int == 0:
				kinds["command"]++
				got, ok := errors.AsType[*mongoerr.CommandError](err)
				if !ok || got.Code != want.Code.Int || got.Name != want.CodeName ||
					got.Message != want.Errmsg {
					t.Errorf("FromReply = %#v, want %+v", err, want)
				}
			case len(want.WriteErrors) > 0:
				kinds["write"]++
				got, ok := errors.AsType[*mongoerr.WriteException](err)
				if !ok || len(got.WriteErrors) != len(want.WriteErrors) {
					t.Fatalf("FromReply = %#v, want %d write errors", err, len(want.WriteErrors))
				}
				for i, w := range want.WriteErrors {
					if g := got.WriteErrors[i]; int32(g.Index) != w.Index.Int ||
						g.Code != w.Code.Int || g.Message != w.Errmsg {
						t.Errorf("write error %d = %+v, want %+v", i, g, w)
					}
				}
			case err != nil:
				t.Errorf("FromReply = %v, want nil", err)
			}
		})
	}
	if kinds["command"] < 10 || kinds["write"] < 5 {
		t.Errorf("errors among the replies: %v", kinds)
	}
}
