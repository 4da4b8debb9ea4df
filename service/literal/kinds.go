package literal

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// no returns the error of a text that is not what it should be.
func no(text, what string) error { return errors.New(clip(text) + " is not " + what) }

func addString(b *bson.Builder, key, text string, _ how) error {
	b.String(key, text)
	return nil
}

func writeString(dst []byte, v bson.Value, _ string) ([]byte, bool) {
	text, ok := v.Str()
	return append(dst, text...), ok && utf8.ValidString(text)
}

func addInt32(b *bson.Builder, key, text string, _ how) error {
	n, err := parseInt(text, 32)
	if err == nil {
		b.Int32(key, int32(n))
	}
	return err
}

func writeInt32(dst []byte, v bson.Value, _ string) ([]byte, bool) {
	n, ok := v.Int32()
	return strconv.AppendInt(dst, int64(n), 10), ok
}

func addInt64(b *bson.Builder, key, text string, _ how) error {
	n, err := parseInt(text, 64)
	if err == nil {
		b.Int64(key, n)
	}
	return err
}

func writeInt64(dst []byte, v bson.Value, _ string) ([]byte, bool) {
	n, ok := v.Int64()
	return strconv.AppendInt(dst, n, 10), ok
}

func parseInt(text string, bits int) (int64, error) {
	n, err := strconv.ParseInt(text, 10, bits)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errors.New(clip(text) + " does not fit in " + strconv.Itoa(bits) + " bits")
	case err != nil:
		return 0, no(text, "an integer")
	}
	return n, nil
}

// addDouble reads decimal numbers, and what JavaScript calls those that are none.
func addDouble(b *bson.Builder, key, text string, _ how) error {
	switch text {
	case "NaN", "Infinity", "-Infinity":
	default:
		if strings.Trim(text, "0123456789+-.eE") != "" {
			return no(text, "a number")
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return errors.New(clip(text) + " is too large for a double")
	case err != nil:
		return no(text, "a number")
	}
	b.Double(key, f)
	return nil
}

func writeDouble(dst []byte, v bson.Value, _ string) ([]byte, bool) {
	f, ok := v.Double()
	switch {
	case !ok:
		return dst, false
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...), true
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...), true
	case math.IsNaN(f):
		return append(dst, "NaN"...), true
	}
	begin := len(dst)
	dst = strconv.AppendFloat(dst, f, 'g', -1, 64)
	if !bytes.ContainsAny(dst[begin:], ".e") {
		dst = append(dst, ".0"...)
	}
	return dst, true
}

func addDecimal(b *bson.Builder, key, text string, _ how) error {
	d, err := bson.ParseDecimal128(text)
	if err != nil {
		return no(text, "a decimal number of at most 34 digits")
	}
	b.Decimal128(key, d)
	return nil
}

func writeDecimal(dst []byte, v bson.Value, _ string) ([]byte, bool) {
	d, ok := v.Decimal128()
	if !ok {
		return dst, false
	}
	return d.Append(dst), true
}

func addBoolean(b *bson.Builder, key, text string, _ how) error {
	switch {
	case text == "1", strings.EqualFold(text, "true"):
		b.Bool(key, true)
	case text == "0", strings.EqualFold(text, "false"):
		b.Bool(key, false)
	default:
		return no(text, "true or false")
	}
	return nil
}

func writeBoolean(dst []byte, v bson.Value, _ string) ([]byte, bool) {
	is, ok := v.Bool()
	return strconv.AppendBool(dst, is), ok
}

func addObjectID(b *bson.Builder, key, text string, _ how) error {
	id, err := bson.ParseObjectID(text)
	if err != nil {
		return no(text, "an ObjectId of 24 hexadecimal digits")
	}
	b.ObjectID(key, id)
	return nil
}

func writeObjectID(dst []byte, v bson.Value, _ string) ([]byte, bool) {
	id, ok := v.ObjectID()
	return hex.AppendEncode(dst, id[:]), ok
}

func addUUID(b *bson.Builder, key, text string, _ how) error {
	id, err := bson.ParseUUID(text)
	if err != nil {
		return no(text, "a UUID")
	}
	b.Binary(key, subtypeUUID, id[:])
	return nil
}

const subtypeUUID = 4

func writeUUID(dst []byte, v bson.Value, _ string) ([]byte, bool) {
	subtype, data, ok := v.Binary()
	if !ok || subtype != subtypeUUID || len(data) != len(bson.UUID{}) {
		return dst, false
	}
	return append(dst, bson.UUID(data).String()...), true
}

func addBinary(b *bson.Builder, key, text string, as how) error {
	var data []byte
	if as.json.Memory != nil && len(text) >= bson.LargeBuffer {
		var err error
		size := base64.StdEncoding.DecodedLen(len(text)) // that of hex is less
		if data, err = as.json.Memory.Grow(nil, 0, size); err != nil {
			return err
		}
	}
	decode, name := base64.StdEncoding.AppendDecode, "base64"
	if as.arg == "hex" {
		decode, name = hex.AppendDecode, as.arg
	}
	// Neither changes the text.
	data, err := decode(data, unsafe.Slice(unsafe.StringData(text), len(text)))
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return no(text, name)
	}
	b.Binary(key, bson.SubtypeGeneric, data)
	return nil
}

func writeBinary(dst []byte, v bson.Value, arg string) ([]byte, bool) {
	subtype, data, ok := v.Binary()
	switch {
	case !ok || subtype != bson.SubtypeGeneric:
		return dst, false
	case arg == "hex":
		return hex.AppendEncode(dst, data), true
	}
	return base64.StdEncoding.AppendEncode(dst, data), true
}

// addJSON reads one value of Extended JSON.
func addJSON(b *bson.Builder, key, text string, as how) error {
	v, _, err := as.json.ParseValue(nil, []byte(text))
	if err != nil {
		return errors.New(clip(text) + " is not a value of " + err.Error())
	}
	b.Value(key, v)
	return nil
}

func writeJSON(dst []byte, v bson.Value, _ string) ([]byte, bool) {
	out, err := extjson.AppendValue(dst, v, extjson.Canonical)
	return out, err == nil
}

// The layouts of date() without a layout. A date without a zone is in UTC.
var dateLayouts = [...]string{
	time.RFC3339, "2006-01-02", "2006-01-02T15:04:05",
	"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00",
}

func addDate(b *bson.Builder, key, text string, as how) error {
	switch as.arg {
	case "":
		return addISODate(b, key, text)
	case "ms":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return no(text, "a date in milliseconds since 1970")
		}
		b.DateTime(key, n)
		return nil
	case "s":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n*1000/1000 != n {
			return no(text, "a date in seconds since 1970")
		}
		b.DateTime(key, n*1000)
		return nil
	}
	t, err := time.Parse(as.arg, text)
	if err != nil {
		return no(text, "a date like "+as.arg)
	}
	b.Time(key, t)
	return nil
}

// maxDate is the length of the longest text that addISODate reads.
const maxDate = 128

// addISODate reads a date, with or without time and zone. A date beyond the years 0 to 9999 is in
// Extended JSON.
func addISODate(b *bson.Builder, key, text string) error {
	const date = "a date such as 2026-11-30 or 2026-11-30T10:15:00Z"
	if len(text) > maxDate {
		return no(text, date)
	}
	if strings.HasPrefix(text, "{") {
		v, _, err := extjson.ParseValue(nil, []byte(text))
		if ms, ok := v.DateTime(); err == nil && ok {
			b.DateTime(key, ms)
			return nil
		}
	}
	for _, layout := range dateLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			b.Time(key, t)
			return nil
		}
	}
	return no(text, date)
}

// writeDate writes what addDate reads. A layout that would lose a part of a date does not take it.
func writeDate(dst []byte, v bson.Value, arg string) ([]byte, bool) {
	ms, ok := v.DateTime()
	t, _ := v.Time()
	switch arg {
	case "":
		return appendISODate(dst, v), ok
	case "ms":
		return strconv.AppendInt(dst, ms, 10), ok
	case "s":
		return strconv.AppendInt(dst, ms/1000, 10), ok && ms%1000 == 0
	}
	begin := len(dst)
	dst = t.AppendFormat(dst, arg)
	back, err := time.Parse(arg, string(dst[begin:]))
	return dst, ok && err == nil && back.UnixMilli() == ms
}

func appendISODate(dst []byte, v bson.Value) []byte {
	t, _ := v.Time()
	switch year := t.Year(); {
	case year < 0 || year > 9999:
	case t.Nanosecond() == 0:
		return t.AppendFormat(dst, "2006-01-02T15:04:05Z")
	default:
		return t.AppendFormat(dst, "2006-01-02T15:04:05.000Z")
	}
	dst, _ = extjson.AppendValue(dst, v, extjson.Canonical) // a date always has a text
	return dst
}

// isLayout reports whether a text describes a date: what it writes of one, it reads back.
func isLayout(text string) bool {
	day := time.Date(2031, 12, 25, 0, 0, 0, 0, time.UTC)
	back, err := time.Parse(text, day.Format(text))
	return err == nil && back.Equal(day)
}
