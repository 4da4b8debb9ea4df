package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// row holds the medians of one side in one case.
type row struct {
	Case, Side       string
	CPU, Allocations float64 // a request; the processor time in microseconds
	P50, P99         float64 // milliseconds
	Peak             float64 // MiB
	More             *more   `json:",omitempty"` // of a side that does more than ours
}

// more holds what a side adds: the medians of the rounds' differences to ours.
type more struct{ CPU, Allocations float64 }

// row returns the medians of a side. ours is nil for a side that adds nothing.
func (c cost) row(name string, ours *cost) row {
	r := row{
		Case: name, Side: c.name, CPU: c.cpu.median(), Allocations: c.allocations.median(),
		P50: c.p50.median(), P99: c.p99.median(), Peak: c.peak.median(),
	}
	if ours != nil {
		r.More = &more{
			c.cpu.minus(ours.cpu).median(), c.allocations.minus(ours.allocations).median(),
		}
	}
	return r
}

// writeResults writes rows to a file, one a line.
func writeResults(path string, rows []row) error {
	text := []byte("[\n")
	for i, r := range rows {
		line, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Case, err)
		}
		text = append(text, line...)
		if i < len(rows)-1 {
			text = append(text, ',')
		}
		text = append(text, '\n')
	}
	return os.WriteFile(path, append(text, "]\n"...), 0o644)
}

func readResults(path string) (rows []row, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return rows, json.Unmarshal(text, &rows)
}
