package match

var (
	Compare = compare
	Whole   = whole
)
