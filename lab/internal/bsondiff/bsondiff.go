// Package bsondiff compares core/bson and core/bson/extjson with the official driver's package
// bson: which documents and texts they accept, and what they make of them. Where the two differ
// and the difference is known, the table of differences says which side does what, and the line
// of the specification that decides it; any other difference is an error. The comparison proves
// nothing about what both get wrong: that is what the specification's corpus is for.
package bsondiff

import (
	"bytes"
	"encoding/json"
	"fmt"

	official "go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// Codec converts documents on one side of the comparison.
type Codec struct {
	// Validate reports whether a document is accepted.
	Validate func(doc []byte) error
	// Normal is a valid document as the side writes it: array keys ascending, options of regular
	// expressions sorted.
	Normal func(doc []byte) ([]byte, error)
	// Write is a document as Extended JSON.
	Write func(doc []byte, canonical bool) ([]byte, error)
	// Read is an Extended JSON text as a document.
	Read func(text []byte) ([]byte, error)
}

// Ours uses the gateway's packages.
func Ours() Codec {
	return Codec{
		Validate: func(doc []byte) error { return bson.Raw(doc).Validate() },
		Normal:   func(doc []byte) ([]byte, error) { return bson.AppendNormal(nil, doc), nil },
		Write: func(doc []byte, canonical bool) ([]byte, error) {
			if canonical {
				return extjson.Append(nil, doc, extjson.Canonical)
			}
			return extjson.Append(nil, doc, extjson.Relaxed)
		},
		Read: func(text []byte) ([]byte, error) { return extjson.Parse(nil, text) },
	}
}

// Official uses the official driver's packages.
func Official() Codec {
	return Codec{
		Validate: func(doc []byte) error {
			var d official.D
			if err := official.Unmarshal(doc, &d); err != nil {
				return err
			}
			return official.Raw(doc).Validate()
		},
		Normal: func(doc []byte) ([]byte, error) {
			var d official.D
			if err := official.Unmarshal(doc, &d); err != nil {
				return nil, err
			}
			return official.Marshal(d)
		},
		Write: func(doc []byte, canonical bool) ([]byte, error) {
			return official.MarshalExtJSON(official.Raw(doc), canonical, false)
		},
		Read: func(text []byte) ([]byte, error) {
			var d official.Raw
			err := official.UnmarshalExtJSON(text, false, &d)
			return d, err
		},
	}
}

// Pair holds the two sides.
type Pair struct{ Ours, Theirs Codec }

// NewPair compares ours with the official driver's.
func NewPair() Pair { return Pair{Ours: Ours(), Theirs: Official()} }

// Document compares what both sides make of a document. It returns the known differences that it
// has met.
func (p Pair) Document(doc []byte) (known []*Difference, err error) {
	ours, theirs := p.Ours.Validate(doc), p.Theirs.Validate(doc)
	if (ours == nil) != (theirs == nil) {
		d := find(acceptingDocuments, doc, ours, theirs)
		if d == nil {
			//nolint:errorlint // one of them is nil
			return nil, fmt.Errorf("document %x: ours: %v; theirs: %v", doc, ours, theirs)
		}
		return []*Difference{d}, nil
	}
	if ours != nil {
		return nil, nil
	}
	for i := range writing {
		if d := &writing[i]; d.applies(doc, nil, nil) {
			known = append(known, d)
		}
	}
	skipTheirs := len(known) > 0
	normal, err := p.normal(doc, skipTheirs)
	if err != nil {
		return known, err
	}
	carried := Uncarried(doc) == 0
	for _, canonical := range []bool{true, false} {
		texts, err := p.write(doc, canonical, skipTheirs)
		if err != nil {
			return known, err
		}
		if carried && len(texts) == 2 && !sameSpelling(texts[0], texts[1]) {
			return known, fmt.Errorf("document %x: ours: %s; theirs: %s", doc, texts[0], texts[1])
		}
		if !carried {
			continue // readers may refuse the text, or read something else from it
		}
		met, err := p.readBack(texts, normal, canonical)
		if err != nil {
			return known, fmt.Errorf("document %x: %w", doc, err)
		}
		known = append(known, met...)
	}
	return known, nil
}

// normal returns the normal form of a document, in which both sides agree.
func (p Pair) normal(doc []byte, skipTheirs bool) ([]byte, error) {
	ours, err := p.Ours.Normal(doc)
	if err != nil {
		return nil, fmt.Errorf("normal form of %x: ours: %w", doc, err)
	}
	if skipTheirs {
		return ours, nil
	}
	theirs, err := p.Theirs.Normal(doc)
	if err != nil {
		return nil, fmt.Errorf("normal form of %x: theirs: %w", doc, err)
	}
	if !bytes.Equal(ours, theirs) && Uncarried(doc)&NaN == 0 {
		return nil, fmt.Errorf("normal form of %x: ours: %x; theirs: %x", doc, ours, theirs)
	}
	return ours, nil
}

// write returns the document's text from each side.
func (p Pair) write(doc []byte, canonical, skipTheirs bool) ([][]byte, error) {
	ours, err := p.Ours.Write(doc, canonical)
	if err != nil {
		return nil, fmt.Errorf("document %x is valid, but writing it: ours: %w", doc, err)
	}
	if !json.Valid(ours) {
		return nil, fmt.Errorf("document %x: ours is not JSON: %s", doc, ours)
	}
	if skipTheirs {
		return [][]byte{ours}, nil
	}
	theirs, err := p.Theirs.Write(doc, canonical)
	if err != nil {
		return nil, fmt.Errorf("document %x is valid, but writing it: theirs: %w", doc, err)
	}
	return [][]byte{ours, theirs}, nil
}

// readBack reads every text by both sides: canonical texts must give the document, relaxed ones
// the same.
func (p Pair) readBack(
	texts [][]byte, want []byte, canonical bool,
) (known []*Difference, err error) {
	for i, text := range texts {
		ours, err := p.Ours.Read(text)
		if err != nil {
			return known, fmt.Errorf("text %d %s: ours: %w", i, text, err)
		}
		theirs, err := p.Theirs.Read(text)
		if err != nil {
			return known, fmt.Errorf("text %d %s: theirs: %w", i, text, err)
		}
		if !canonical && i == 0 {
			want = ours
		}
		switch d := find(reading, text, nil, nil); {
		case bytes.Equal(ours, want) && bytes.Equal(theirs, want):
		case bytes.Equal(ours, want) && d != nil:
			known = append(known, d)
		default:
			return known, fmt.Errorf("text %d %s: ours: %x; theirs: %x; want %x", i, text, ours,
				theirs, want)
		}
	}
	return known, nil
}

// Text compares what both sides make of a text. It returns the known difference, if there is one.
func (p Pair) Text(text []byte) (*Difference, error) {
	ours, oursErr := p.Ours.Read(text)
	theirs, theirsErr := p.Theirs.Read(text)
	switch {
	case oursErr != nil && theirsErr != nil, oursErr == nil && theirsErr == nil &&
		bytes.Equal(ours, theirs):
		return nil, nil
	case oursErr == nil && theirsErr == nil:
		if d := find(reading, text, nil, nil); d != nil {
			return d, nil
		}
		return nil, fmt.Errorf("text %q: ours: %x; theirs: %x", text, ours, theirs)
	}
	if d := find(acceptingTexts, text, oursErr, theirsErr); d != nil {
		return d, nil
	}
	//nolint:errorlint // one of them is nil
	return nil, fmt.Errorf("text %q: ours: %x, %v; theirs: %x, %v",
		text, ours, oursErr, theirs, theirsErr)
}
