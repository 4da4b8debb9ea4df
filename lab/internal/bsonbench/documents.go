package bsonbench

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// Document holds one document to measure with, or several of one kind.
type Document struct {
	Name string
	Docs []bson.Raw
}

// archives are the specifications' benchmark documents: the files of each archive, and what they
// are called here.
var archives = []struct {
	file  string
	names map[string]string
}{
	{"extended_bson.tgz", map[string]string{
		"flat_bson.json": "flat", "deep_bson.json": "deep", "full_bson.json": "full",
	}},
	{"single_and_multi_document.tgz", map[string]string{
		"tweet.json": "tweet", "small_doc.json": "small", "large_doc.json": "large",
	}},
}

var order = []string{"flat", "deep", "full", "tweet", "small", "large"}

// Documents returns the documents of the specifications, if they are present, one with every common
// type, and a page of documents with 60 fields. The note says what is missing.
func Documents() (docs []Document, note string) {
	found, err := specified()
	if err != nil {
		note = fmt.Sprintf("the specifications' documents are left out: %v (SPECIFICATIONS_DIR "+
			"names their folder)", err)
	}
	for _, name := range order {
		if d, ok := found[name]; ok {
			docs = append(docs, Document{name, []bson.Raw{d}})
		}
	}
	return append(docs, Document{"mixed", []bson.Raw{mixed()}},
		Document{"sixty", sixty()}), note
}

func specified() (map[string]bson.Raw, error) {
	root, err := directory()
	if err != nil {
		return nil, err
	}
	found := map[string]bson.Raw{}
	for _, a := range archives {
		if err := unpack(filepath.Join(root, a.file), a.names, found); err != nil {
			return found, fmt.Errorf("%s: %w", a.file, err)
		}
	}
	return found, nil
}

// directory returns the folder of the archives: in SPECIFICATIONS_DIR, or beside the checkout.
func directory() (string, error) {
	if dir := os.Getenv("SPECIFICATIONS_DIR"); dir != "" {
		return filepath.Join(dir, "benchmarking"), nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		specs := filepath.Join(dir, "shared", "specifications", "benchmarking")
		if info, err := os.Stat(specs); err == nil && info.IsDir() {
			return specs, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no shared/specifications/benchmarking beside the checkout")
		}
		dir = parent
	}
}

// unpack reads the named files of an archive.
func unpack(path string, names map[string]string, into map[string]bson.Raw) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name, ok := names[filepath.Base(h.Name)]
		if !ok {
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if into[name], err = extjson.Parse(nil, text); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

// mixed returns an order as a shop stores it: what the specifications' documents have little of
// is ObjectIds, dates, decimals and arrays of documents together.
func mixed() bson.Raw {
	price, err := bson.ParseDecimal128("1249.90")
	if err != nil {
		panic("bug: " + err.Error())
	}
	id := bson.ObjectID{0x56, 0xE1, 0xFC, 0x72, 0xE0, 0xC9, 0x17, 0xE9, 0xC4, 0x71, 0x41, 0x61}
	b := bson.NewBuilder(nil).
		ObjectID("_id", id).String("customer", "Ada Lovelace").DateTime("placed",
		1_700_000_000_123).DateTime("shipped", 1_700_100_000_000).
		Int32("version", 3).Int64("number", 9_007_199_254_740_993).Bool("paid",
		true).Null("coupon").Decimal128("total", price).
		OpenDocument("address").String("street", "12 St James's Square").String("city", "London").
		OpenArray("geo").Double("", -0.1337).Double("", 51.5074).Close().Close().
		OpenArray("lines")
	for i := range int32(8) {
		b.OpenDocument("").ObjectID("product", id).String("name",
			"Überraschung ☆ № 5").Int32("quantity", i).Double("price", 19.99+float64(i)).
			Decimal128("tax", price).DateTime("reserved", 1_700_000_000_000+int64(i)).Close()
	}
	return b.Close().Binary("signature", bson.SubtypeGeneric,
		[]byte("0123456789abcdef0123456789abcdef")).
		Timestamp("oplog", 1_700_000_000, 7).Regex("match", "^a.*z$", "i").Finish()
}
