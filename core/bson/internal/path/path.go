// Package path names places in documents for error messages.
package path

import (
	"strings"
	"unicode/utf8"
)

// limit is about how long a path may be: keys come from outside, and can be of
// any size.
const limit = 256

// Join makes "a.b.3" of keys. What is too long is cut and ends in an ellipsis;
// bytes that are not UTF-8 are replaced.
func Join(keys []string) string {
	var b strings.Builder
	for i, key := range keys {
		if i > 0 {
			b.WriteByte('.')
		}
		if room := limit - b.Len(); len(key) > room {
			room = max(room, 0)
			for room > 0 && !utf8.RuneStart(key[room]) {
				room--
			}
			b.WriteString(strings.ToValidUTF8(key[:room], "\uFFFD"))
			b.WriteString("…")
			break
		}
		b.WriteString(strings.ToValidUTF8(key, "\uFFFD"))
	}
	return b.String()
}
