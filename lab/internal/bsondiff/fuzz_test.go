package bsondiff_test

import (
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/lab/internal/bsondiff"
)

func FuzzDocument(f *testing.F) {
	for _, d := range bsondiff.AcceptingDocuments() {
		if len(d.Example) < 1000 {
			f.Add([]byte(d.Example))
		}
	}
	for _, d := range bsondiff.Writing() {
		f.Add([]byte(d.Example))
	}
	for seed := range uint64(20) {
		g := bsondiff.NewGenerator(seed)
		f.Add([]byte(g.Document()))
		f.Add([]byte(g.Uncarried(bsondiff.Classes[seed%3])))
	}
	p := bsondiff.NewPair()
	f.Fuzz(func(t *testing.T, doc []byte) {
		if _, err := p.Document(doc); err != nil {
			t.Error(err)
		}
	})
}

func FuzzText(f *testing.F) {
	for _, d := range append(bsondiff.AcceptingTexts(), bsondiff.Reading()...) {
		if len(d.Example) < 1000 {
			f.Add([]byte(d.Example))
		}
	}
	for seed := range uint64(40) {
		f.Add(bsondiff.NewGenerator(seed).Text())
	}
	p := bsondiff.NewPair()
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := p.Text(text); err != nil {
			t.Error(err)
		}
	})
}

func FuzzDecimal128(f *testing.F) {
	for _, s := range []string{
		"1.0E+3", "-Infinity", "nan", ".5", "5.", "10E-6177", "9999999999999999999999999999999999E6111", "1E6112", "0E9999", "1e", "+-1", "0E10000000000000000000",
	} {
		d, _ := bson.ParseDecimal128(s)
		f.Add(s, d.H, d.L)
	}
	f.Add("", uint64(0x3041ED09BEAD87C0), uint64(0x378D8E6400000000))
	f.Fuzz(func(t *testing.T, s string, h, l uint64) {
		if err := bsondiff.DecimalText(s); err != nil {
			t.Error(err)
		}
		if err := bsondiff.DecimalBits(h, l); err != nil {
			t.Error(err)
		}
	})
}
