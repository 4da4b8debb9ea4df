package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// inOrder lists the groups of operations as a reference shows them: documents first, and what
// drops them after everything that reads and writes them. Other groups follow by name.
var inOrder = []string{
	"Document", "DocumentResource", "Cursor", "Transaction", "Session", "ChangeStream", "Catalog",
	"Command", "Deployment",
}

func compareTags(a, b string) int {
	rank := func(tag string) int {
		if at := slices.Index(inOrder, tag); at >= 0 {
			return at
		}
		return len(inOrder)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a, b))
}

// paths holds the operations by path and HTTP method. Those of one path are in one group.
type paths map[string]map[string]*operation

func (p paths) tag(path string) string {
	for _, op := range p[path] {
		return op.Tags[0]
	}
	return ""
}

// MarshalJSON writes the paths group by group, and those of a group by name.
func (p paths) MarshalJSON() ([]byte, error) {
	sorted := slices.SortedFunc(maps.Keys(p), func(a, b string) int {
		return cmp.Or(compareTags(p.tag(a), p.tag(b)), strings.Compare(a, b))
	})
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	for i, path := range sorted {
		text.WriteByte("{,"[min(i, 1)])
		if err := enc.Encode(path); err != nil {
			return nil, err
		}
		text.WriteByte(':')
		if err := enc.Encode(p[path]); err != nil {
			return nil, err
		}
	}
	text.WriteByte('}')
	return text.Bytes(), nil
}
