package bsondiff

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
)

// sameSpelling reports whether two texts of one document have the same tokens, but for white
// space, escapes, the spelling of doubles and the differences of the table spelling.
func sameSpelling(a, b []byte) bool {
	x, errX := tokens(a)
	y, errY := tokens(b)
	return errX == nil && errY == nil && slices.Equal(x, y)
}

func tokens(text []byte) (all []string, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	last := ""
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		s := ""
		switch v := token.(type) {
		case json.Number:
			s = normalDouble(string(v))
		case string:
			s = strconv.Quote(normalString(last, v))
			last = v
		case json.Delim:
			s = v.String()
		case bool:
			s = strconv.FormatBool(v)
		default:
			s = "null"
		}
		all = append(all, s)
	}
}

// normalString returns the normal form of a string after another, which may be its key.
func normalString(key, s string) string {
	switch key {
	case "$numberDouble":
		return normalDouble(s)
	case "$date":
		if text, ok := strings.CutSuffix(s, "Z"); ok && strings.Contains(text, ".") {
			return strings.TrimRight(text, "0") + "Z"
		}
	}
	return s
}

func normalDouble(s string) string {
	if f, err := strconv.ParseFloat(s, 64); err == nil && strings.ContainsAny(s, ".eE") {
		return strconv.FormatFloat(f, 'E', -1, 64)
	}
	return s
}
