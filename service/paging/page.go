package paging

import "github.com/mooringdb/mooring/core/bson"

// Page holds what one page call delivers.
type Page struct {
	// Documents are views on a reply's buffer, or on a copy; they do not change.
	Documents []bson.Raw
	// Token asks for the next page. It is empty if there is none.
	Token string
}

// Cursor returns the token as responses have it: nil at the end.
func (p Page) Cursor() *string {
	if p.Token == "" {
		return nil
	}
	return &p.Token
}
