package extjson_test

import (
	"bytes"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// TestLegacy reads older forms, which a parser takes only if it is told to.
func TestLegacy(t *testing.T) {
	legacy := extjson.Parser{Limit: extjson.NoLimit, Legacy: true}
	for text, want := range map[string]bson.Value{
		`{"$date":1356351330501}`:                               bson.DateTimeValue(1356351330501),
		`{ "$date" : -1 }`:                                      bson.DateTimeValue(-1),
		`{"$date":"2012-12-24T13:15:30.501+0100"}`:              bson.DateTimeValue(1356351330501),
		`{"$date":"2012-12-24T11:15:30.501999-0100"}`:           bson.DateTimeValue(1356351330501),
		`{"$binary":"AQID","$type":"80"}`:                       bson.BinaryValue(0x80, []byte{1, 2, 3}),
		`{ "$binary" : "AQID" , "\u0024type" : "2" }`:           bson.BinaryValue(2, []byte{1, 2, 3}),
		`{"$date":"2012-12-24T12:15:30.501Z"}`:                  bson.DateTimeValue(1356351330501),
		`{"$binary":{"base64":"AQID","subType":"05"}}`:          bson.BinaryValue(5, []byte{1, 2, 3}),
		`{"$date":{"$numberLong":"-1"}}`:                        bson.DateTimeValue(-1),
		`{"$date":9223372036854775807}`:                         bson.DateTimeValue(1<<63 - 1),
		`{"$date":"0001-01-01T00:00:00.000-0000"}`:              bson.DateTimeValue(-62135596800000),
		`{"$date":"2012-12-24T12:15:30.501123456789123+00:00"}`: bson.DateTimeValue(1356351330501),
	} {
		if v, _, err := legacy.ParseValue(nil, []byte(text)); err != nil || !v.Equal(want) {
			t.Errorf("%s is %v %x, %v", text, v.Type, v.Data, err)
		}
	}
	for text, offset := range map[string]int{
		`{"$date":1.5}`:                              9,
		`{"$date":9223372036854775808}`:              9,
		`{"$date":1e3}`:                              9,
		`{"$date":-}`:                                9,
		`{"$date":true}`:                             9,
		`{"$date":1,"a":1}`:                          10,
		`{"$date":"2012-12-24T13:15:30.501+01"}`:     9,
		`{"$date":"2012-12-24T13:15:30.501+2400"}`:   9,
		`{"$date":"2012-12-24T13:15:30.501 0100"}`:   9,
		`{"$binary":"AQID"}`:                         11,
		`{"$binary":"AQID","type":"80"}`:             11,
		`{"$binary":"AQID","$type":80}`:              26,
		`{"$binary":"AQI","$type":"80"}`:             11,
		`{"$binary":"AQID","$type":"800"}`:           27,
		`{"$binary":"AQID","$type":"80","x":1}`:      30,
		`{"$type":"80","$binary":"AQID"}`:            14,
		`{"$binary":{"base64":"AQID","$type":"80"}}`: 11,
	} {
		v, _, err := legacy.ParseValue(nil, []byte(text))
		if syntax, ok := err.(*extjson.SyntaxError); !ok || syntax.Offset != offset { //nolint:errorlint // not wrapped
			t.Errorf("%s is %v, %v, want an error at %d", text, v.Type, err, offset)
		}
	}
	for _, text := range []string{
		`{"a":{"$date":1}}`, `{"a":{"$date":"2012-12-24T13:15:30.501+0100"}}`, `{"a":{"$binary":"AQID","$type":"80"}}`,
	} {
		if doc, err := extjson.Parse(nil, []byte(text)); err == nil {
			t.Errorf("%s is %x without Legacy", text, doc)
		}
	}
	dst := []byte("before")
	if out, err := legacy.Parse(dst, []byte(`{"a":{"$date":x}}`)); err == nil ||
		!bytes.Equal(out, dst) {
		t.Errorf("after an error: %q, %v", out, err)
	}
}
