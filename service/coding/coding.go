// Package coding compresses and inflates the messages of clients, with gzip and zstd, and counts
// their items. It bounds what a message becomes before it inflates the message. It knows no
// protocol.
package coding

import (
	"strconv"
	"strings"
)

// Coding names a way to compress. The zero value compresses nothing.
type Coding uint8

// The codings.
const (
	Identity Coding = iota
	Gzip
	Zstd

	numCodings
)

var names = [...]string{Identity: "identity", Gzip: "gzip", Zstd: "zstd"}

// String returns the name of the coding in headers.
func (c Coding) String() string { return names[c] }

// All lists the names of the codings that compress, as a header lists them.
const All = "gzip, zstd"

// Of returns the coding of a name. The empty name is Identity.
func Of(name string) (c Coding, ok bool) {
	switch strings.ToLower(name) {
	case "", "identity":
		return Identity, true
	case "gzip", "x-gzip":
		return Gzip, true
	case "zstd":
		return Zstd, true
	}
	return Identity, false
}

// Choose returns the coding that a client prefers by the values of a header such as
// Accept-Encoding: by its weights, and of the same weight zstd before gzip, and both before
// Identity. It returns Identity if the client accepts no other.
func Choose(header []string) Coding {
	weights := weigh(header)
	best, most := Identity, max(weights[Identity], 0)
	for _, c := range [...]Coding{Gzip, Zstd} {
		if w := weights[c]; w > 0 && w >= most {
			best, most = c, w
		}
	}
	return best
}

// Takes reports whether a client accepts a coding that compresses, by the values of a header such
// as Accept-Encoding.
func Takes(header []string, c Coding) bool { return weigh(header)[c] > 0 }

// weigh returns the weights of the codings; that of Identity is negative if the header does not
// name it, and those of the others then are that of *.
func weigh(header []string) (weights [numCodings]float64) {
	const unsaid = -1
	others := float64(unsaid)
	weights = [numCodings]float64{unsaid, unsaid, unsaid}
	for _, line := range header {
		for element := range strings.SplitSeq(line, ",") {
			name, weight := parseWeighted(element)
			switch c, ok := Of(name); {
			case name == "*":
				others = weight
			case ok && name != "":
				weights[c] = weight
			}
		}
	}
	for _, c := range [...]Coding{Gzip, Zstd} {
		if weights[c] == unsaid {
			weights[c] = others
		}
	}
	return weights
}

// parseWeighted parses an element such as gzip;q=0.5. A weight that is none is 0.
func parseWeighted(element string) (name string, weight float64) {
	name, params, _ := strings.Cut(element, ";")
	weight = 1
	if key, value, ok := strings.Cut(params, "="); ok &&
		strings.EqualFold(strings.TrimSpace(key), "q") {
		var err error
		weight, err = strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(weight >= 0 && weight <= 1) {
			weight = 0
		}
	}
	return strings.TrimSpace(name), weight
}

// DefaultMinSize is the size from which a message is compressed, unless a limit is configured. A
// smaller one fits into two packets as it is.
const DefaultMinSize = 2 << 10
