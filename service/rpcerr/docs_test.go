package rpcerr_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/rpcerr"
)

// The tables of docs/api.md are this package's, row by row.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, reason := range rpcerr.Reasons() {
		row := rpcerr.ReasonRow(reason)
		want = append(want, fmt.Sprintf("`%s` %s %s %s", reason, row[0], row[1], row[2]))
	}
	for _, cells := range rows(string(page), "<!-- reasons:") {
		got = append(got, strings.Join(cells[:4], " "))
		if cells[4] == "" {
			t.Errorf("%s: nothing says when", cells[0])
		}
	}
	compare(t, "reasons", got, want)

	want, got = nil, nil
	for code, row := range rpcerr.ServerCodes() {
		want = append(want, fmt.Sprintf("%s %s %s %d %s", row[0], row[1], row[2], code, row[3]))
	}
	for _, cells := range rows(string(page), "<!-- codes:") {
		for code := range strings.SplitSeq(cells[3], ", ") {
			got = append(got, strings.Join(cells[:3], " ")+" "+code)
		}
	}
	compare(t, "codes", got, want)
}

// rows are the cells of the table after a mark, without its two head lines.
func rows(page, mark string) [][]string {
	_, page, _ = strings.Cut(page, mark)
	_, page, _ = strings.Cut(page, "|---")
	_, page, _ = strings.Cut(page, "\n")
	var table [][]string
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		table = append(table, cells)
	}
	return table
}

func compare(t *testing.T, what string, got, want []string) {
	t.Helper()
	for _, row := range want {
		if !slices.Contains(got, row) {
			t.Errorf("%s: docs/api.md does not have %q", what, row)
		}
	}
	for _, row := range got {
		if !slices.Contains(want, row) {
			t.Errorf("%s: docs/api.md has %q, which is not so", what, row)
		}
	}
}
