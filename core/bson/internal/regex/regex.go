// Package regex orders the options of regular expressions.
package regex

import (
	"slices"
	"unicode/utf8"
)

// SortOptions sorts the characters of options in place, as BSON stores them.
// What is not UTF-8 has no characters and stays as it is.
func SortOptions(options []byte) {
	if slices.IsSorted(options) || !utf8.Valid(options) {
		return
	}
	if len(options) == utf8.RuneCount(options) {
		slices.Sort(options)
		return
	}
	characters := []rune(string(options))
	slices.Sort(characters)
	copy(options, string(characters))
}

// Sorted returns options in order: itself if it is, else a copy.
func Sorted(options []byte) []byte {
	if slices.IsSorted(options) {
		return options
	}
	options = slices.Clone(options)
	SortOptions(options)
	return options
}
