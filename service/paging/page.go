package paging

import "github.com/mooringdb/mooring/core/bson"

// Page holds what one page call delivers.
type Page struct {
	// Documents are views on a reply's buffer, or on a copy. They do not change, and are valid
	// until the end of the call that gets the page.
	Documents []bson.Raw
	// Token asks for the next page. It is empty if there is none.
	Token string
	// lent is what keeps the documents valid, beside other holders of the page.
	lent lent
}

// Cursor returns the token as responses have it: nil at the end.
func (p Page) Cursor() *string {
	if p.Token == "" {
		return nil
	}
	return &p.Token
}
