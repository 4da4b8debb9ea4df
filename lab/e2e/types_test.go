package e2e

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// bsonTypes has every type of BSON, with the values that are most easily lost.
func bsonTypes(t *testing.T) []namedValue {
	t.Helper()
	decimal := func(text string) bson.Decimal128 {
		d, err := bson.ParseDecimal128(text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	id := bson.ObjectID{0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	values := []namedValue{
		{"double", 1.5},
		{"double, integral", 5.0},
		{"double, minus zero", math.Copysign(0, -1)},
		{"double, least", math.SmallestNonzeroFloat64},
		{"double, most", math.MaxFloat64},
		{"double, infinite", math.Inf(1)},
		{"double, minus infinite", math.Inf(-1)},
		// The value of math.NaN() has a payload, which JSON cannot say.
		{"double, NaN", math.Float64frombits(0x7ff8 << 48)},
		{"string", "plain"},
		{"string, empty", ""},
		{"string, every kind of character", "\"\\/\b\f\n\r\t\x01\x7f é 世 𝄞 \u2028\u2029"},
		{"string, NUL", "a\x00b"},
		{"document", fields("a", int32(1), "b", fields("c", "d"))},
		{"document, empty", fields()},
		{"document, empty key", fields("", int32(1))},
		{"document, dots and dollars", fields("a.b", int32(1), "c$d", int32(2))},
		{"document, order", fields("2", int32(1), "1", int32(2), "b", int32(3), "a", int32(4))},
		{"array", bson.A{int32(1), "two", fields("three", 3.5)}},
		{"array, empty", bson.A{}},
		{"array, nested", bson.A{bson.A{}, bson.A{bson.A{int32(1)}}}},
		{"undefined", bson.Undefined{}},
		{"ObjectID", id},
		{"false", false},
		{"true", true},
		{"date", bson.DateTime(1_700_000_000_123)},
		{"date, before 1970", bson.DateTime(-1)},
		{"date, before the year 0", bson.DateTime(-62_200_000_000_000)},
		{"date, after the year 9999", bson.DateTime(253_500_000_000_000)},
		{"null", nil},
		{"regular expression", bson.Regex{Pattern: `^a/b\.c"$`, Options: "im"}},
		{"regular expression, empty", bson.Regex{}},
		{"DBPointer", bson.DBPointer{DB: "db.c", Pointer: id}},
		{"code", bson.JavaScript("function() { return \"x\"; }")},
		{"symbol", bson.Symbol("symbol")},
		{"code with scope", bson.CodeWithScope{Code: "f()", Scope: fields("x", int32(1))}},
		{"int32", int32(42)},
		{"int32, least", int32(math.MinInt32)},
		{"timestamp", bson.Timestamp{T: math.MaxUint32, I: 2}},
		{"int64, small", int64(42)},
		{"int64, beyond a double", int64(1)<<53 + 1},
		{"int64, least", int64(math.MinInt64)},
		{"decimal128", decimal("1.50")},
		{"decimal128, exponent", decimal("-1.5E+6144")},
		{"decimal128, least", decimal("1E-6176")},
		{"decimal128, infinite", decimal("Infinity")},
		{"decimal128, NaN", decimal("NaN")},
		{"MinKey", bson.MinKey{}},
		{"MaxKey", bson.MaxKey{}},
	}
	for _, subtype := range []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x80, 0xff} {
		data := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
		if subtype == 9 {
			data = []byte{0x27, 0, 1, 2, 3} // a vector of float32
		}
		values = append(values, namedValue{
			fmt.Sprintf("binary, subtype %d", subtype), bson.Binary{Subtype: subtype, Data: data},
		})
	}
	return append(values, namedValue{"binary, empty", bson.Binary{}})
}

type namedValue struct {
	name  string
	value any
}

// TestTypes sends every type through gRPC as BSON and through REST as canonical Extended JSON,
// into the server and out of it. What the server itself does not hold (the official driver is the
// witness) is skipped by name.
func TestTypes(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	db := suite.Database(t)
	documents := g.Documents(t)
	direct := suite.Direct(t).Database(db)
	held := 0
	values := bsonTypes(t)
	for i, v := range values {
		t.Run(v.name, func(t *testing.T) {
			id := int32(i)
			doc := raw(t, fields("_id", id, "v", v.value))
			if err := roundTrip(t, direct.Collection("witness"), id, doc); err != nil {
				t.Skipf("the server does not hold it: %v", err)
			}
			held++

			t.Run("gRPC", func(t *testing.T) {
				if _, err := documents.InsertOne(t.Context(), &mooringv1.InsertOneRequest{
					Database: db, Collection: "grpc", Document: &mooringv1.Document{
						Encoding: &mooringv1.Document_Bson{Bson: doc},
					},
				}); err != nil {
					t.Fatal(err)
				}
				wantStored(t, direct.Collection("grpc"), id, doc)
				found, err := documents.FindOne(t.Context(), &mooringv1.FindOneRequest{
					Database: db, Collection: "grpc", Filter: document(t, fields("_id", id)),
				})
				if err != nil || !bytes.Equal(found.GetDocument().GetBson(), doc) {
					t.Errorf("FindOne() = %v, %v, want %v", bson.Raw(found.GetDocument().GetBson()),
						err, doc)
				}
			})
			t.Run("REST", func(t *testing.T) {
				text := canonicalJSON(t, doc)
				in := g.Post(t, gatewaytest.Documents(db, "rest", "insertOne"),
					`{"document": `+text+`}`)
				if in.Status != 200 {
					t.Fatalf("insertOne %s: %d %s", text, in.Status, in.Body)
				}
				wantStored(t, direct.Collection("rest"), id, doc)
				out := g.Post(t, gatewaytest.Documents(db, "rest", "findOne"),
					fmt.Sprintf(`{"filter": {"_id": %d}}`, id),
					gatewaytest.Header{Name: "Accept", Value: "application/ejson"})
				var got struct{ Document bson.Raw }
				// Compared as text: the official driver reads "NaN" as math.NaN(), which has
				// other bytes.
				if err := bson.UnmarshalExtJSON(out.Body, true, &got); err != nil ||
					canonicalJSON(t, got.Document) != text {
					t.Errorf("findOne: %d %s, %v, want %s", out.Status, out.Body, err, text)
				}
			})
		})
	}
	t.Logf("the server holds %d of %d values", held, len(values))
}

// canonicalJSON writes a document with the official driver.
func canonicalJSON(t testing.TB, doc bson.Raw) string {
	t.Helper()
	text, err := bson.MarshalExtJSON(doc, true, false)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// roundTrip stores a document past the gateway and reads it back.
func roundTrip(t testing.TB, c *mongo.Collection, id int32, doc bson.Raw) error {
	t.Helper()
	if _, err := c.InsertOne(t.Context(), doc); err != nil {
		return err
	}
	got, err := c.FindOne(t.Context(), fields("_id", id)).Raw()
	if err == nil && !bytes.Equal(got, doc) {
		return fmt.Errorf("it gives %v for %v", got, doc)
	}
	return err
}

func wantStored(t testing.TB, c *mongo.Collection, id int32, doc bson.Raw) {
	t.Helper()
	got, err := c.FindOne(t.Context(), fields("_id", id)).Raw()
	if err != nil || !bytes.Equal(got, doc) {
		t.Errorf("the server has %v, %v, want %v", got, err, doc)
	}
}

// TestBytesOnly sends what only BSON can carry: Extended JSON has no form for it.
func TestBytesOnly(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	db := suite.Database(t)
	documents := g.Documents(t)
	direct := suite.Direct(t).Database(db)
	build := func(id int32, more func([]byte) []byte) bson.Raw {
		i, b := bsoncore.AppendDocumentStart(nil)
		b, _ = bsoncore.AppendDocumentEnd(more(bsoncore.AppendInt32Element(b, "_id", id)), i)
		return b
	}
	rows := map[string]bson.Raw{
		"duplicate keys": build(1, func(b []byte) []byte {
			return bsoncore.AppendInt32Element(bsoncore.AppendInt32Element(b, "a", 1), "a", 2)
		}),
		"a NaN with a payload": build(2, func(b []byte) []byte {
			return bsoncore.AppendDoubleElement(b, "v", math.Float64frombits(0x7ff8_0000_0000_0001))
		}),
		"a document that looks like a wrapper": build(3, func(b []byte) []byte {
			return bsoncore.AppendDocumentElement(b, "v",
				bsoncore.Document(raw(t, fields("$oid", "651f3c0a0102030405060708"))))
		}),
	}
	for name, doc := range rows {
		t.Run(name, func(t *testing.T) {
			id := doc.Lookup("_id").Int32()
			if err := roundTrip(t, direct.Collection("witness"), id, doc); err != nil {
				t.Skipf("the server does not hold it: %v", err)
			}
			if _, err := documents.InsertOne(t.Context(), &mooringv1.InsertOneRequest{
				Database: db, Collection: "grpc",
				Document: &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: doc}},
			}); err != nil {
				t.Fatal(err)
			}
			wantStored(t, direct.Collection("grpc"), id, doc)
		})
	}
}
