package rpcerr

import (
	"regexp"
	"slices"
)

// telling describes texts of servers that a client may see although the server's words are kept
// back, because they can only quote the client's own request.
type telling struct {
	codes []int32
	// text matches all of the text; nil: the code alone says what the text is about, since servers
	// give it before they have read a document.
	text *regexp.Regexp
	why  string
}

// tellings lists these texts, of MongoDB and of DocumentDB. A code that is not in it is kept back:
// 11000 (the values of a duplicate key), 121 (why a document is not valid), 241 ("Failed to parse
// number 'SECRET'"), 28 ("in element {a: SECRET}"), 40228 ("it yielded SECRET"), and all that say
// of which type a stored value is. 2 and 14 are both: "document {_id: 1} has the field 'a' of type
// string" has the code of a wrong option. Of these only whole texts count.
var tellings = []telling{
	{[]int32{9}, nil, "FailedToParse: the shape of the request"},
	{[]int32{59}, nil, "CommandNotFound: the name of the command"},
	{[]int32{73}, nil, "InvalidNamespace: the name in the request"},
	{[]int32{40}, nil, "ConflictingUpdateOperators: two paths of the update"},
	{[]int32{56}, nil, "EmptyFieldName: a path of the update"},
	{[]int32{40324, 40323}, nil, "a stage without a known name"},
	{[]int32{40415, 40414}, nil, "a field of the request that is unknown, or missing"},
	{[]int32{15952, 15951, 15955, 40234, 40237, 40238}, nil, "the shape of a $group"},
	{[]int32{31325, 168}, nil, "an expression without a known name"},
	{[]int32{31253, 31254}, nil, "a projection that includes and excludes"},
	{[]int32{28818, 28811, 28812}, nil, "the shape of an $unwind"},
	{[]int32{28745, 28746, 28747, 28748, 28749}, nil, "the shape of a $sample"},
	{
		[]int32{5107200, 5107201, 15957, 15958, 15972, 15973, 15974, 15975, 15976},
		nil,
		"the value of a $limit, a $skip or a $sort",
	},
	{[]int32{16020}, nil, "the number of an expression's arguments"},
	{[]int32{40198, 40321, 4570, 4571, 4572}, nil, "the shape of a $bucket or a $lookup"},
	{[]int32{51091}, nil, "the syntax of a regular expression in a filter"},
	{
		[]int32{2},
		whole(`(unknown|Unknown) top level operator: \S+( If you .*)?`),
		"an operator of the filter",
	},
	{
		[]int32{2},
		whole(`(unknown operator:|Unrecognized operator specified:) \S+`),
		"an operator of the filter",
	},
	{
		[]int32{2},
		whole(`Expected 'array' type for \$(and|or|nor|in|nin|all)`),
		"the value of an operator of the filter",
	},
	{
		[]int32{2},
		whole(`\$\S+ (needs an array|must be an array|must be a nonempty array|` +
			`arrays must have at least one entry|needs an Object|needs a regex or a document)`),
		"the value of an operator of the filter",
	},
	{
		[]int32{2},
		whole(`(Unrecognized data type alias|Unknown type name alias): \S+`),
		"the value of a $type of the filter",
	},
	{
		[]int32{2},
		whole(`malformed mod, (not enough|too many) elements`),
		"the value of a $mod of the filter",
	},
	{
		[]int32{2},
		whole(`Failed to parse \$size\. Expected a(n integer| number) in: \$size: .*`),
		"the value of a $size of the filter",
	},
	{[]int32{2}, whole(`\S+ is an unknown field`), "a field of the command"},
	{[]int32{2}, whole(`Expected document for sort specification`), "a $sort"},
	{
		[]int32{14},
		whole(`(The )?BSON field '[^']*' (is the wrong type|has an incorrect type) ` +
			`'\w+'[,;] (expected types? |it should be of type )['\w\[\], ]+\.?`),
		"the type of a field of the command",
	},
	{[]int32{14}, whole(`Increment should be numeric`), "the value of an $inc"},
}

// whole returns an expression that matches all of a text.
func whole(pattern string) *regexp.Regexp { return regexp.MustCompile(`\A(?:` + pattern + `)\z`) }

// maxTold is the length of the longest text that is looked at. A longer one is kept back.
const maxTold = 4 << 10

// isTold reports whether a client may see the server's text although its words are kept back.
func isTold(code int32, text string) bool {
	return len(text) <= maxTold && slices.ContainsFunc(tellings, func(t telling) bool {
		return slices.Contains(t.codes, code) && (t.text == nil || t.text.MatchString(text))
	})
}
