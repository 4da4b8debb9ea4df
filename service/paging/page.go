package paging

import "github.com/mooringdb/mooring/core/bson"

// Page is what one page call delivers.
type Page struct {
	// Documents are views on a reply's buffer, or on a copy; they do not change.
	Documents []bson.Raw
	// Token asks for the next page; empty: there is none.
	Token string
}

// Cursor is the token as responses have it: nil at the end.
func (p Page) Cursor() *string {
	if p.Token == "" {
		return nil
	}
	return &p.Token
}
