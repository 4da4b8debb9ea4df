// Package spelling finds the known name that a mistaken one is most like. It is pure.
package spelling

import (
	"cmp"
	"iter"
	"strings"
)

// MaxLength is the length of the longest text that is compared, in bytes.
const MaxLength = 64

// Nearest returns the name that is most like a text, "" if none is like it.
func Nearest(text string, names iter.Seq[string]) string {
	if len(text) > MaxLength {
		return ""
	}
	best, least := "", likeness{beside: (len(text) + 1) / 3, bytes: len(text)}
	for name := range names {
		if name == "" {
			continue
		}
		l := liken(strings.ToLower(text), strings.ToLower(name))
		if c := l.compare(least); c < 0 || c == 0 && (best == "" || name < best) {
			best, least = name, l
		}
	}
	return best
}

// likeness says how little a name is like a text.
type likeness struct {
	beside int // the distance, if neither is the beginning of the other
	bytes  int // the distance
}

func (l likeness) compare(other likeness) int {
	return cmp.Or(cmp.Compare(l.beside, other.beside), cmp.Compare(l.bytes, other.bytes))
}

func liken(text, name string) likeness {
	d := Distance(text, name)
	l := likeness{beside: d, bytes: d}
	switch {
	case len(text) > 2 && strings.HasPrefix(name, text):
		l.beside = min(d, 1)
	case len(name) > 2 && strings.HasPrefix(text, name):
		l.beside = min(d, 2)
	}
	return l
}

// Distance returns how many bytes must be added, removed or replaced to make one text the other.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
