package bsondiff

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
)

// Generator makes documents and texts. The same seed gives the same ones.
type Generator struct{ r *rand.Rand }

// NewGenerator begins with a seed.
func NewGenerator(seed uint64) *Generator { return &Generator{rand.New(rand.NewPCG(seed, 0))} }

// Document returns a document of any types that Extended JSON carries.
func (g *Generator) Document() bson.Raw {
	b := bson.NewBuilder(nil)
	g.elements(b, 0)
	return b.Finish()
}

// maxDepth of generated documents; limits have tests of their own.
const maxDepth = 5

func (g *Generator) elements(b *bson.Builder, depth int) {
	for i := range g.r.IntN(6) {
		g.element(b, fmt.Sprintf("%s%d", g.key(), i), depth)
	}
}

// key returns a key that may begin with a dollar, but is not that of a wrapper.
func (g *Generator) key() string {
	if g.r.IntN(8) > 0 {
		return strings.ReplaceAll(g.text(), "\x00", "")
	}
	return []string{
		"$", "$ref", "$id", "$db", "$gt", "$regex", "$type", "$oi", "$dat",
		"",
	}[g.r.IntN(10)]
}

func (g *Generator) element(b *bson.Builder, key string, depth int) {
	n := g.r.IntN(len(values) + 3)
	switch {
	case n < len(values):
		values[n](g, b, key)
	case depth == maxDepth:
		b.Null(key)
	case n == len(values):
		b.OpenDocument(key)
		g.elements(b, depth+1)
		b.Close()
	case n == len(values)+1:
		b.OpenArray(key)
		g.elements(b, depth+1)
		b.Close()
	default:
		var scope bson.Builder
		g.elements(&scope, depth+1)
		b.CodeWithScope(key, g.text(), scope.Finish())
	}
}

// values append one value each.
var values = []func(g *Generator, b *bson.Builder, key string){
	func(g *Generator, b *bson.Builder, key string) { b.Double(key, g.double()) },
	func(g *Generator, b *bson.Builder,
		key string,
	) {
		b.Double(key, float64(g.r.IntN(4000)-2000)/4)
	},
	func(g *Generator, b *bson.Builder, key string) { b.String(key, g.text()) },
	func(g *Generator, b *bson.Builder,
		key string,
	) {
		b.Binary(key, byte(g.r.Uint32()), g.bytes())
	},
	func(g *Generator, b *bson.Builder,
		key string,
	) {
		b.Binary(key, bson.SubtypeBinaryOld, g.bytes())
	},
	func(g *Generator, b *bson.Builder, key string) { b.Undefined(key) },
	func(g *Generator, b *bson.Builder, key string) { b.ObjectID(key, g.objectID()) },
	func(g *Generator, b *bson.Builder, key string) { b.Bool(key, g.r.IntN(2) == 0) },
	func(g *Generator, b *bson.Builder, key string) { b.DateTime(key, g.date()) },
	func(g *Generator, b *bson.Builder, key string) { b.Null(key) },
	func(g *Generator, b *bson.Builder, key string) {
		b.Regex(key, strings.ReplaceAll(g.text(), "\x00", ""),
			[]string{"", "i", "imx", "xsmi", "lu"}[g.r.IntN(5)])
	},
	func(g *Generator, b *bson.Builder, key string) { b.DBPointer(key, "db.c", g.objectID()) },
	func(g *Generator, b *bson.Builder, key string) { b.DBPointer(key, g.text(), g.objectID()) },
	func(g *Generator, b *bson.Builder, key string) { b.JavaScript(key, g.text()) },
	func(g *Generator, b *bson.Builder, key string) { b.Symbol(key, g.text()) },
	func(g *Generator, b *bson.Builder, key string) { b.Int32(key, int32(g.integer())) },
	func(g *Generator, b *bson.Builder, key string) { b.Int64(key, g.integer()) },
	func(g *Generator, b *bson.Builder,
		key string,
	) {
		b.Timestamp(key, g.r.Uint32(), g.r.Uint32())
	},
	func(g *Generator, b *bson.Builder, key string) { b.Decimal128(key, g.decimal()) },
	func(g *Generator, b *bson.Builder, key string) { b.MinKey(key) },
	func(g *Generator, b *bson.Builder, key string) { b.MaxKey(key) },
}

func (g *Generator) text() string {
	text := make([]rune, g.r.IntN(12))
	for i := range text {
		switch g.r.IntN(7) {
		case 0:
			text[i] = rune(g.r.IntN(32))
		case 1:
			text[i] = rune(0x80 + g.r.IntN(0xD780)) // up to the surrogates
		case 2:
			text[i] = []rune{'"', '\\', '/', '\u2028', '\uFFFD', '😀', 0x10FFFF}[g.r.IntN(7)]
		default:
			text[i] = rune(' ' + g.r.IntN(95))
		}
	}
	return string(text)
}

func (g *Generator) bytes() []byte {
	b := make([]byte, g.r.IntN(20))
	for i := range b {
		b[i] = byte(g.r.Uint32())
	}
	return b
}

func (g *Generator) objectID() (id bson.ObjectID) {
	for i := range id {
		id[i] = byte(g.r.Uint32())
	}
	return id
}

func (g *Generator) double() float64 {
	if g.r.IntN(4) == 0 {
		return []float64{
			0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.MaxFloat64,
			math.SmallestNonzeroFloat64, 1 << 53, 1e15, 1e21, 1e-7,
		}[g.r.IntN(10)]
	}
	if f := math.Float64frombits(g.r.Uint64()); f == f {
		return f
	}
	return math.Float64frombits(canonicalNaN)
}

// integer returns an integer of any size: each number of digits is as frequent as the others.
func (g *Generator) integer() int64 { return int64(g.r.Uint64()) >> g.r.IntN(64) }

func (g *Generator) date() int64 {
	const endOf9999 = 253_402_300_799_999
	switch g.r.IntN(4) {
	case 0:
		return []int64{
			0, -1, endOf9999, endOf9999 + 1, math.MinInt64, math.MaxInt64, 100,
			1000,
		}[g.r.IntN(8)]
	case 1:
		return g.integer()
	}
	return g.r.Int64N(endOf9999)
}

func (g *Generator) decimal() bson.Decimal128 {
	for {
		text := fmt.Sprintf("%d%0*d.%dE%d", g.integer(), g.r.IntN(15), 0, g.r.Int64N(1e9),
			g.r.IntN(12400)-6200)
		if g.r.IntN(8) == 0 {
			text = []string{
				"Infinity", "-Infinity", "NaN", "-0", "0E+6111",
				"-0E-6176",
			}[g.r.IntN(6)]
		}
		if d, err := bson.ParseDecimal128(text); err == nil {
			return d
		}
	}
}

// Uncarried returns a document with a value of a class.
func (g *Generator) Uncarried(c Class) bson.Raw {
	b := bson.NewBuilder(nil)
	g.elements(b, maxDepth-1)
	switch c {
	case Wrapper:
		b.OpenDocument("wrapper")
		for _, before := range g.r.Perm(3)[:g.r.IntN(3)] {
			b.Int32(fmt.Sprint(before), 1)
		}
		b.Value(g.wrapperKey(), bson.StringValue(g.text()))
		b.Close()
	case NaN:
		payload := g.r.Uint64()&(1<<52-1) | 1
		b.Double("nan", math.Float64frombits(g.r.Uint64()&(1<<63)|0x7FF<<52|payload))
	case Decimal:
		b.Decimal128("decimal", g.uncarriedDecimal())
	default:
		panic("bug: no such class")
	}
	return b.Finish()
}

func (g *Generator) wrapperKey() string {
	n := g.r.IntN(len(wrapperKeyList))
	return wrapperKeyList[n]
}

var wrapperKeyList = []string{
	"$oid", "$symbol", "$numberInt", "$numberLong", "$numberDouble", "$numberDecimal", "$binary",
	"$code", "$scope",
	"$timestamp", "$regularExpression", "$dbPointer", "$date", "$minKey", "$maxKey", "$undefined",
	"$uuid",
}

func (g *Generator) uncarriedDecimal() bson.Decimal128 {
	sign := g.r.Uint64() & (1 << 63)
	switch g.r.IntN(4) {
	case 0: // signalling, with a payload
		return bson.Decimal128{H: sign | 0x7E<<56 | g.r.Uint64N(1<<46), L: g.r.Uint64()}
	case 1: // an infinity with trailing bits
		return bson.Decimal128{H: sign | 0x78<<56, L: 1 + g.r.Uint64N(1<<60)}
	case 2: // the large form
		return bson.Decimal128{H: sign | 0x6C<<56, L: g.r.Uint64()}
	}
	return bson.Decimal128{H: sign | 0x3041ED09BEAD87C0, L: 0x378D8E6400000000 + g.r.Uint64N(1<<40)}
}

// Broken returns a document with some bytes changed. It may still be valid.
func (g *Generator) Broken() []byte {
	d := g.Document().Clone()
	for range 1 + g.r.IntN(2) {
		i := g.r.IntN(len(d))
		switch g.r.IntN(5) {
		case 0:
			d[i] = byte(g.r.Uint32())
		case 1:
			d[i]++
		case 2:
			d[i] = 0
		case 3:
			d[i] = byte(g.r.IntN(24))
		default:
			if len(d) > 5 && d[4] == byte(bson.TypeNull) {
				d[4] = byte(bson.TypeMinKey)
			}
			d[i]--
		}
	}
	return d
}
