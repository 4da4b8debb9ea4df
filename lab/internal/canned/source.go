package canned

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// source makes the documents of one collection.
type source struct {
	// templates are documents whose first element is the int32 _id. Document i is made of the one
	// whose turn it is.
	templates [][]byte
	count     int
	delay     time.Duration // before every answer
}

// idOffset is where the int32 of the first element "_id" stands: length, type, "_id", NUL.
const idOffset = 4 + 1 + 4

func (s source) template(i int) []byte { return s.templates[i%len(s.templates)] }

// fit returns how many of n documents, which begin with document first, fit into one reply, and
// their bytes. One always fits.
func (s source) fit(first, n int) (count, size int) {
	for ; count < n; count++ {
		each := len(s.template(first + count))
		if count > 0 && size+each > maxReply {
			break
		}
		size += each
	}
	return count, size
}

// append appends document i.
func (s source) append(dst []byte, i int) []byte {
	at := len(dst) + idOffset
	dst = append(dst, s.template(i)...)
	binary.LittleEndian.PutUint32(dst[at:], uint32(i))
	return dst
}

// appendBatch appends the elements of an array of n documents, which begin with document first.
func (s source) appendBatch(dst []byte, first, n int) []byte {
	for i := range n {
		dst = append(dst, byte(bsoncore.TypeEmbeddedDocument))
		dst = appendIndex(dst, i)
		dst = append(dst, 0)
		dst = s.append(dst, first+i)
	}
	return dst
}

// Document gives document i of a collection as the server sends it.
func Document(collection string, i int) ([]byte, error) {
	s, err := parseCollection(collection)
	if err != nil {
		return nil, err
	}
	if i < 0 || i >= s.count {
		return nil, fmt.Errorf("%s has no document %d", collection, i)
	}
	return s.append(nil, i), nil
}

// parseCollection reads the name of a collection; see the package comment.
func parseCollection(name string) (source, error) {
	kind, rest, _ := strings.Cut(name, "_")
	var numbers []int
	for f := range strings.SplitSeq(rest, "_") {
		n, err := strconv.Atoi(f)
		if err != nil || n < 0 {
			return source{}, fmt.Errorf("collection %q: %q is not a number", name, f)
		}
		numbers = append(numbers, n)
	}
	switch {
	case kind == "orders" && len(numbers) == 1:
		return source{templates: [][]byte{order}, count: numbers[0]}, nil
	case kind == "mixed" && len(numbers) == 1:
		return source{templates: [][]byte{mixed()}, count: numbers[0]}, nil
	case kind == "docs" && len(numbers) == 2 && numbers[1] >= minPadded:
		return source{templates: [][]byte{padded(numbers[1])}, count: numbers[0]}, nil
	case kind == "mix" && len(numbers) > 1 && slices.Min(numbers[1:]) >= minPadded:
		src := source{count: numbers[0]}
		for _, size := range numbers[1:] {
			src.templates = append(src.templates, padded(size))
		}
		return src, nil
	case kind == "control" && len(numbers) == 2 && numbers[1] >= minPadded:
		pad := strings.Repeat("\x01", numbers[1]-minPadded)
		return source{templates: [][]byte{paddedWith(pad)}, count: numbers[0]}, nil
	case kind == "late" && len(numbers) == 2:
		return source{
			templates: [][]byte{padded(minPadded)}, count: numbers[0],
			delay: time.Duration(numbers[1]) * time.Millisecond,
		}, nil
	case kind == "slow" && len(numbers) == 1:
		return source{delay: time.Duration(numbers[0]) * time.Millisecond}, nil
	}
	return source{}, fmt.Errorf("collection %q is none of orders_N, mixed_N, docs_N_SIZE, "+
		"mix_N_SIZE_SIZE…, control_N_SIZE (SIZE at least %d), late_N_MS, slow_MS", name, minPadded)
}

// minPadded is the size of a padded document without padding.
var minPadded = len(paddedWith(""))

func padded(size int) []byte { return paddedWith(strings.Repeat("x", size-minPadded)) }

func paddedWith(pad string) []byte {
	return bsoncore.NewDocumentBuilder().AppendInt32("_id", 0).AppendString("pad", pad).Build()
}

// order is a document as a shop would have it.
var order = bsoncore.NewDocumentBuilder().
	AppendInt32("_id", 0).
	AppendObjectID("customer", [12]byte{0x65, 0x1f, 0x3c, 0x0a, 1, 2, 3, 4, 5, 6, 7, 8}).
	AppendString("status", "shipped").
	AppendDateTime("placed", 1_790_000_000_000).
	AppendDouble("total", 149.85).
	AppendInt64("version", 9_007_199_254_740_993).
	AppendBoolean("gift", false).
	AppendNull("coupon").
	AppendDocument("address", bsoncore.NewDocumentBuilder().
		AppendString("name", "Grace Hopper").
		AppendString("street", "1 Harbor \"Street\"").
		AppendString("city", "Gdańsk").
		AppendString("country", "PL").
		Build()).
	AppendArray("items", bsoncore.NewArrayBuilder().
		AppendDocument(item("rope-20m", "Mooring rope, 20 m", 2, 39.95)).
		AppendDocument(item("fender-l", "Fender, large", 1, 49.95)).
		AppendDocument(item("cleat-s", "Cleat, steel", 4, 5)).
		Build()).
	AppendArray("tags",
		bsoncore.NewArrayBuilder().AppendString("harbor").AppendString("priority").Build()).
	Build()

func item(sku, name string, quantity int32, price float64) []byte {
	return bsoncore.NewDocumentBuilder().
		AppendString("sku", sku).
		AppendString("name", name).
		AppendInt32("quantity", quantity).
		AppendDouble("price", price).
		Build()
}

// mixed returns a document of 60 fields, of as many types as applications mix.
func mixed() []byte {
	b := bsoncore.NewDocumentBuilder().AppendInt32("_id", 0)
	for i := range int32(59) {
		key := fmt.Sprintf("key%d", i)
		switch i % 10 {
		case 0:
			b.AppendString(key, "a text of ASCII")
		case 1:
			b.AppendInt32(key, i*1_000_003)
		case 2:
			b.AppendDouble(key, float64(i)*1.37)
		case 3:
			b.AppendInt64(key, int64(i)<<40)
		case 4:
			b.AppendDateTime(key, 1_790_000_000_000+int64(i)*86_400_123)
		case 5:
			b.AppendBoolean(key, i%20 == 5)
		case 6:
			b.AppendString(key, "Gdańsk \"Nowy Port\"")
		case 7:
			b.AppendObjectID(key, [12]byte{0x65, 0x1f, 0x3c, 0x0a, 1, 2, 3, 4, 5, 6, 7, byte(i)})
		case 8:
			b.AppendArray(key, bsoncore.NewArrayBuilder().AppendInt32(i).AppendString("x").Build())
		case 9:
			b.AppendNull(key)
		}
	}
	return b.Build()
}
