package rest

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/service/rpcerr"
)

// maxHint is the length of the longest segment that an error repeats, or looks for a name for.
const maxHint = 64

// notFound returns the error of a path that ends at, or leaves, the tree at this node. segment is
// the part that leads nowhere, and verb what follows the last colon.
func (n *node) notFound(segment, verb string, isVerb bool) error {
	const nothing = "there is nothing at this path"
	switch {
	case isVerb && verb == "":
		return refuse(rpcerr.RouteNotFound, nothing+`: the name of a call follows ":"`)
	case isVerb:
		for _, name := range slices.Sorted(maps.Keys(n.literals)) {
			if _, ok := n.literals[name].ends[verb]; ok {
				return refuse(rpcerr.RouteNotFound, "there is no call "+quoted(":"+verb)+
					" here: did you mean "+quoted("/"+name+":"+verb)+"?")
			}
		}
		if name := nearest(verb, maps.Keys(n.ends)); name != "" {
			return refuse(rpcerr.RouteNotFound, "there is no call "+quoted(":"+verb)+
				" here: did you mean "+quoted(":"+name)+"?")
		}
		return refuse(rpcerr.RouteNotFound, "there is no call "+quoted(":"+verb)+` here (a ":" `+
			"in a name is %3A in a path)"+n.known())
	case segment != "":
		if name := nearest(segment, maps.Keys(n.literals)); name != "" {
			return refuse(rpcerr.RouteNotFound, "there is no "+quoted(segment)+
				" at this place of a path: did you mean "+quoted(name)+"?")
		}
	}
	return refuse(rpcerr.RouteNotFound, nothing+n.known())
}

// known lists how a path can go on at this node.
func (n *node) known() string {
	var names []string
	for name := range n.literals {
		names = append(names, "/"+name)
	}
	for verb := range n.ends {
		if verb != "" {
			names = append(names, ":"+verb)
		}
	}
	if n.variable != nil {
		names = append(names, "/{"+n.variable.name+"}")
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return ". Here a path can go on with " + strings.Join(names, ", ")
}

func quoted(text string) string {
	if len(text) > maxHint {
		text = strings.ToValidUTF8(text[:maxHint], "") + "…"
	}
	return strconv.Quote(text)
}

// nearest returns the name that is most like a text, "" if none is like it.
func nearest(text string, names iter.Seq[string]) string {
	if len(text) > maxHint {
		return ""
	}
	best, least := "", len(text)/3+2
	for name := range names {
		if name == "" {
			continue
		}
		written, lower := strings.ToLower(text), strings.ToLower(name)
		d := distance(written, lower)
		if len(text) > 2 && strings.HasPrefix(lower, written) {
			d = 1
		}
		if d < least || d == least && best != "" && before(name, best) {
			best, least = name, d
		}
	}
	return best
}

// before orders names that are equally near.
func before(a, b string) bool { return len(a) < len(b) || len(a) == len(b) && a < b }

// distance returns how many bytes must be added, removed or replaced to make one text the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
