package render

import "fmt"

// Count returns a number with a noun that has a plural in -s: "1 cell", "2 cells".
func Count[N int | int64 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
